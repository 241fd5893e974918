#!/bin/sh
# test_bench_tcp.sh - promises of the programs of bench/tcp: every contender is measured in every test, a wrong result is
# noticed, and compare.py makes its tables.  The figures themselves are not checked.
#
# usage: [CC=cc] [CFLAGS=...] [COLL_LIBS=...] sh tests/programs/test_bench_tcp.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2086
. "$(dirname "$0")/bench.sh"

cd "$top/bench/tcp" || exit 1
compile $defines -c ../common/ours.c -o "$dir/ours.o" || exit 1
compile -c reference.c -o "$dir/reference.o" || exit 1
compile pair.c "$dir/ours.o" "$dir/reference.o" -o "$dir/pair" $libs -lm || exit 1
for program in link overlap; do compile $program.c "$dir/ours.o" -o "$dir/$program" $libs -lm || exit 1; done
compile start.c "$dir/ours.o" -o "$dir/start.ours" $libs -lm || exit 1
compile ../common/solo.c "$dir/ours.o" -o "$dir/solo" $libs -lm || exit 1
compile "$top/tools/coll-run.c" -o "$dir/coll-run" || exit 1
cd "$dir" || exit 1
run="./coll-run --no-prefix -q -t 60"

check_lines "every collective on 2 ranks" ./pair 2 poll,uring 0.001 8,20,300000 all
uring=$(($(grep -c '^none	io	2	0	ours-uring	' out) == 0))
check_count "ours by poll in all of them" '^time.*	ours-poll	' 31
check_count "ours by io_uring, or that there is none" '^time.*	ours-uring	' $((uring * 31))
check_count "the reference that swaps, in both forms of allreduce" '^time	allreduce.*	ref-swap	' 6
check_count "the reference of halves, from 8 KiB up" '^time	allreduce.*	ref-halves	' 2
check_count "each of ours against each of them" '^ratio	allreduce.*	ours-[a-z]*/ref-' $(((1 + uring) * 8))
check_count "what others used" '^others' 31
for ranks in 3 4; do
    check_lines "every collective on $ranks ranks" ./pair $ranks auto 0.001 8,70000 all
    check_count "ours in all of them" '^time.*	ours	' 21
done
for contender in ours ref-swap ref-halves; do
    check_end "a wrong result of $contender" "^$contender: allreduce_in_place of 5000 floats.*rank [01] has" 3 \
        ./pair 2 poll 0.001 20000 allreduce_in_place $contender
done
check_end "no such collective" '"scam"' 2 ./pair 2 poll 0.001 8 scan,scam
check_end "no such size" '"8,x"' 2 ./pair 2 poll 0.001 8,x scan
check_end "no such input and output" '"pole"' 1 ./pair 2 pole 0.001 8 scan
check_end "one rank is too few" 'usage' 2 ./pair 1 poll 0.001 8 scan
for who in poll reference; do
    check_lines "operations by $who without figures" ./pair 2 $who =3 8,70000 allreduce
    check_count "and without lines" . 0
done

check_lines "a library by itself" $run -n 3 ./solo alone "$dir/shared" 0.001 8,70000 all
check_count "under its name" '^time.*	alone	' 21
check_end "its wrong result" '^alone: scatter of .*rank [012] has' 3 $run -n 3 ./solo alone "$dir/shared" 0.001 80 scatter alone
check_lines "start" env BENCH_T0=0 $run -n 5 ./start.ours here "$dir/started"
check_count "its time and memory" '^\(start\|memory\)	start	5	0	here' 2
check_lines "overlap" ./overlap 0.001 64K 4 poll
check_count "two ways over the longer one" '^ratio	overlap	2	65536	poll-[a-z]*/longer' 2
check_lines "a link, which is the loopback" $run -n 2 sh -c \
    './link shared-link 0.001 8,300000 wire $COLL_RANK 2 1 $COLL_ADDR 127.0.0.1 127.0.0.1 lo'
check_count "ours, over bf16 too, and bytes alone" '^time	wire	2	[0-9]*	\(ours\|ours-bf16\|raw\)	' 6
check_count "what left, counted" '^egress	wire	2	[0-9]*	\(ours\|ours-bf16\|raw\)	' 6

if command -v python3 >/dev/null 2>&1; then
    python3 "$top/bench/tcp/compare.py" --build . --tiny >out 2>err
    status=$?
    [ $status -eq 0 ] && ok "compare.py" || fail "compare.py" "exit status $status"
    check_count "a table for each collective" '^### [a-z_ ]*, [23] ranks (us)' 5
    check_count "ours is held against the references" '^| ours-[a-z]* / best reference ' $((2 + uring * 2))
    check_count "links, or why not" '^### allreduce, 1 Gbit/s, 2 hosts x 1\|^# no network namespaces' 1
    check_count "overlap, or why not" '^### allreduce of 1M under computation\|^# no network namespaces' 1
    check_count "start" '^### From the launch' 1
    check_count "the conclusions" '^[0-9]* of [0-9]* targets met' 1
    printf '#!/bin/sh\nexit 3\n' >pair
    check_end "compare.py tells of a wrong result" 'pair: exit status 3' 1 \
        python3 "$top/bench/tcp/compare.py" --build . --tiny --only collectives
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
