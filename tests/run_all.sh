#!/bin/sh
# Every test, in the forms that prove something: with address and undefined-behaviour sanitizers, with the thread sanitizer,
# from the single file.  Each suite prints "N passed, N failed"; the sum is the last line.
#   usage: run_all.sh [SUITE...]       COLL_TEST_SEED=... replays a seed
cd "$(dirname "$0")/.." || exit 1
: "${CC:=cc}"
export CC
passed=0 failed=0 log=build/test-logs
mkdir -p $log

count() { # name: add up what the suite's log ends with
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log/$1.log" | tail -n 1)
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    if [ -z "$line" ]; then p=0 f=1; fi
    if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    printf '%-28s %6d passed %4d failed   %4d s\n' "$1" "$p" "$f" "$(($(date +%s) - began))"
    if [ "$f" -ne 0 ]; then grep -vE '^ok' "$log/$1.log" | tail -n 40; fi
}

suite() { # name command...
    name=$1; shift
    case " $only " in "  " | *" $name "*) ;; *) return ;; esac
    began=$(date +%s)
    "$@" > "$log/$name.log" 2>&1
    count "$name" $?
}

program() { # config test arguments...: build, then run
    c=$1 t=$2; shift 2
    make --no-print-directory config="$c" CPPFLAGS="$CPPFLAGS" "build/$c/$t" && "./build/$c/$t" "$@"
}

from_dist() { # the same test, with the single file in the place of the parts
    t=$1; shift
    make --no-print-directory CPPFLAGS="$CPPFLAGS" "build/dist/$t" && "./build/dist/$t" "$@"
}

scaled() { COLL_TEST_SCALE=$1; export COLL_TEST_SCALE; shift; "$@"; s=$?; unset COLL_TEST_SCALE; return $s; }

exemplified() { # the examples that check themselves, in every world in which they run
    make --no-print-directory build/release/groups build/release/custom_transport build/release/coll-run || return 1
    right=0
    for command in "groups" "groups 13" "env COLL_TRANSPORT=sim ./groups 60" "coll-run -n 6 ./groups" "custom_transport 5"; do
        case $command in env*) ;; *) command="./$command" ;; esac
        (cd build/release && $command) && right=$((right + 1)) || echo "not right: $command"
    done
    echo "$right passed, $((5 - right)) failed"
    [ $right -eq 5 ]
}

demonstrated() { make --no-print-directory run-demo && echo "1 passed, 0 failed"; }

# All programs that the suites below name for a configuration, with as many compilers as there are processors.  What fails to
# build is told by its suite.
build_all() {
    for c in asan tsan release; do
        programs=$(sed -n "s/^suite .* program $c \\(test_[a-z]*\\).*/build\\/$c\\/\\1/p" tests/run_all.sh | sort -u)
        make --no-print-directory -k -j "$(nproc)" config=$c CPPFLAGS="$CPPFLAGS" $programs > "$log/build-$c.log" 2>&1
    done
}

libs=-DCOLL_NO_URING
printf '#include <liburing.h>\nint main(void) { return 0; }\n' | $CC -x c - -luring -o /dev/null 2> /dev/null && libs=-luring
only="$*"
[ -n "$only" ] || build_all

suite numbers            program asan test_numbers
suite exact              program asan test_exact
suite precision          program release test_precision
suite convert            program asan test_convert
suite emulated           sh tests/emulated.sh
suite algorithms         program asan test_algorithms
suite tuner              program asan test_tuner
suite threads            program asan test_threads
suite threads-tsan       scaled 0.5 program tsan test_threads
suite mx                 program asan test_mx
suite mx-tsan            scaled 0.5 program tsan test_mx threads,lists,means
suite wire               program asan test_wire
suite collectives        program asan test_collectives
suite collectives-tsan   scaled 0.25 program tsan test_collectives
suite collectives-dist   scaled 0.5 from_dist test_collectives
suite errors             program asan test_errors
suite faults             program asan test_faults
suite errors-tsan        program tsan test_errors
suite sim                program asan test_sim
suite sim-large          program release test_sim 65536
suite shared             program asan test_shared
suite shared-tsan        program tsan test_shared
suite proof              program release test_proof
suite hosts              program asan test_hosts
suite contract           program release test_contract
suite contract-asan      program asan test_contract threads,sim 3
suite random             program asan test_random
suite misuse             program asan test_misuse
suite random-tsan        scaled 0.5 program tsan test_random --world threads
suite contract-tsan      program tsan test_contract threads 3
suite misuse-tsan        program tsan test_misuse threads local,requests,groups,threads,ends
suite random-dist        scaled 0.25 from_dist test_random
suite compile            sh tests/test_compile.sh
suite run                sh tests/test_run.sh
suite perf               env COLL_LIBS="-pthread $libs" sh tests/test_perf.sh
suite bench              env COLL_LIBS="-pthread $libs" sh tests/test_bench.sh
suite examples           exemplified
suite demo               demonstrated
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
