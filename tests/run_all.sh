#!/bin/sh
# Every test, in the forms that prove something: with address and undefined-behavior sanitizers, with the thread sanitizer,
# from the single file.  Each suite prints "N passed, N failed"; the sum is the last line.
#   usage: run_all.sh [TIER... | SUITE...]       COLL_TEST_SEED=... replays a seed
#
# Suites are in three tiers: `check` has the main tests, `test` the other tests that run on most machines, `rest` those that take
# longer.  `make check` runs the first, `make test` the first two, `make test-all` the last.  Without an argument all of them run.
# tests/README.md describes each suite.
#
# The suites of the list below run in lanes.  There are as many lanes for `suite`s as processors (four at most); each takes the
# first suite that is not taken, so the longest ones of the last tier come first.  Two more lanes run suites that usually wait
# (`waits`).  A `brief` suite is left out if a later tier, which runs it in full with a sanitizer, is run, too.  A suite reports
# at its end: seconds, and seconds of processors.  Builds are printed as they begin; running suites are printed if there is no
# other output for some seconds.
cd "$(dirname "$0")/.." || exit 1
: "${CC:=cc}"
export CC
. tests/support/folder.sh
log=$(folder test-logs)
mkdir -p $log
taken=$(mktemp -d) || exit 1
began_all=$(date +%s)
mkdir "$taken/.now"                               # a file for each thing that is being done
: > "$taken/.said"                                # its time is that of the last line
trap 'rm -rf "$taken"; kill $watcher 2> /dev/null' EXIT
trap 'exit 1' HUP INT TERM

seconds_of() { # the sum of the times in what `times` has printed last: 0m1.50s 0m0.25s
    awk 'END { for (i = 1; i <= NF; i++) { split($i, t, "[ms]"); sum += 60 * t[1] + t[2] } printf "%d", sum + 0.5 }' "$1"
}

report() { # name status began: what the suite's log ends with, in one write
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed' "$log/$1.log" | tail -n 1)
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    if [ -z "$line" ]; then p=0 f=1; fi
    if [ "$2" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    printf "%-28s %6d passed %4d failed   %4d s %5d s\n" "$1" "$p" "$f" "$(($(date +%s) - $3))" \
        "$(seconds_of "$taken/$1/times")" > "$taken/$1/report"
    if [ "$f" -ne 0 ]; then                       # the last lines, then the sentences of the checks that failed
        { grep -avE '^ok' "$log/$1.log" | tail -n 30; grep -aE ': failed: ' "$log/$1.log" | head -n 10; } >> "$taken/$1/report"
    fi
    cat "$taken/$1/report"
    : > "$taken/.said"
    if [ "$f" -ne 0 ]; then cp "$taken/$1/report" "$taken/$1/failed"; fi
    echo "$p $f" > "$taken/$1/sum"
}

take() { # the lane that may take it, name command...
    case " $lane " in *" $1 "* | " list ") ;; *) return ;; esac
    name=$2; shift 2
    case " $only " in "  " | *" $name "* | *" $tier "*) ;; *) return ;; esac
    if [ "$lane" = list ]; then                   # what it runs: the configuration and the program
        while [ $# -gt 0 ] && [ "$1" != program ]; do shift; done
        [ $# -lt 3 ] || echo "$2 $3"
        return
    fi
    mkdir "$taken/$name" 2> /dev/null || return
    began=$(date +%s)
    : > "$taken/.now/$name"
    ( "$@" > "$log/$name.log" 2>&1; status=$?; times > "$taken/$name/times"; exit $status )
    report "$name" $? "$began"
    rm -f "$taken/.now/$name"
}

# Whenever nothing has been printed for some seconds: what is being done.
watch() {
    while sleep 2 > /dev/null && [ -d "$taken" ]; do
        said=$(date -r "$taken/.said" +%s 2> /dev/null) && now=$(date +%s) || continue
        [ $((now - said)) -ge 6 ] || continue
        doing=$(ls "$taken/.now" 2> /dev/null | tr '\n+' ',/' | sed 's/,$//; s/,/, /g')
        echo "... $((now - began_all)) s: ${doing:-starting}"
        : > "$taken/.said"
    done
}

suite() { take work "$@"; }
waits() { take wait "$@"; }
brief() { case " $only " in "  " | *" test "*) ;; *) suite "$@" ;; esac; }

program() { # config test arguments...: build, then run
    c=$1 t=$(folder "$1")/$2; shift 2
    make --no-print-directory config="$c" CPPFLAGS="$CPPFLAGS" "$t" && "./$t" "$@"
}

from_dist() { # the same test, with the single file in the place of the parts, from which it has to be made
    t=$1; shift
    sh tests/build/test_single.sh || return 1
    make --no-print-directory CPPFLAGS="$CPPFLAGS" "build/dist/$t" && "./build/dist/$t" "$@"
}

scaled() { COLL_TEST_SCALE=$1; export COLL_TEST_SCALE; shift; "$@"; s=$?; unset COLL_TEST_SCALE; return $s; }

exemplified() { # the examples that check themselves, in every world in which they run
    plain=$(folder plain)
    make --no-print-directory config=plain "$plain/groups" "$plain/custom_transport" "$plain/coll-run" || return 1
    right=0
    for command in "groups" "groups 13" "env COLL_TRANSPORT=sim ./groups 60" "coll-run -n 6 ./groups" "custom_transport 5"; do
        case $command in env*) ;; *) command="./$command" ;; esac
        (cd "$plain" && $command) && right=$((right + 1)) || echo "not right: $command"
    done
    echo "$right passed, $((5 - right)) failed"
    [ $right -eq 5 ]
}

documented() { # the script, which is given coll-run: what README.md, docs/ and the manual show
    make --no-print-directory config=plain "$(folder plain)/coll-run" && sh "tests/programs/$1" "$(folder plain)/coll-run"
}

paged() { make --no-print-directory CFLAGS=-Werror run-examples-check; } # the transformer, trained every way

counted() { # without the checks of stacks and jumps that some compilers add by default (Ubuntu's): the limits are without them
    counting=$(folder release) unchecked=
    if $CC -dM -E -x c /dev/null | grep -qE '__(SSP_[A-Z]*|CET)__'; then
        counting=$counting/unchecked
        unchecked="-fno-stack-protector -fno-stack-clash-protection -fcf-protection=none -U_FORTIFY_SOURCE"
    fi
    make --no-print-directory BUILD="$counting" CFLAGS="$CFLAGS $unchecked" "$counting/instructions" \
        && sh bench/instructions.sh "$counting/instructions" most
}

styled() { # no line, function or file is too long
    if sh tests/style.sh > "$taken/style.out" && [ ! -s "$taken/style.out" ]; then echo "1 passed, 0 failed"; return; fi
    cat "$taken/style.out"
    return 1
}

demonstrated() {
    STEPS=40 OPTIONS="--width 32 --batch 8" make --no-print-directory config=plain CFLAGS=-O1 run-demo \
        && echo "1 passed, 0 failed"
}

# What the suites below build, with as many compilers as there are processors: the implementation for each configuration, with
# and without TLS, then the programs.  If a program fails to build, its suite reports it.
build_list() { # number, all, configuration, target
    (lane=list; suites) | sort -u > "$taken/.programs"
    awk -v sealed=" $(make --no-print-directory sealed) " '{ print $1, index(sealed, " " $2 " ") ? "coll_tls.o" : "coll.o" }' \
        "$taken/.programs" | sort -u > "$taken/.objects"
    cat "$taken/.objects" "$taken/.programs" | awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) print i, NR, line[i] }'
}

build_all() {
    each='. tests/support/folder.sh; target=$(folder "$3")/$4
        doing=$(echo "building $target" | tr / +)
        echo "building $1 of $2: $target"
        : > "$taken/.said"; : > "$taken/.now/$doing"
        make --no-print-directory -k config=$3 CPPFLAGS="$CPPFLAGS" "$target" >> '"$log"'/build.log 2>&1
        rm -f "$taken/.now/$doing"'
    build_list > "$taken/.build"
    objects=$(grep -c . "$taken/.objects")
    : > $log/build.log
    for part in "1,$objects" "$((objects + 1)),\$"; do
        sed -n "${part}p" "$taken/.build" | taken=$taken CPPFLAGS="$CPPFLAGS" xargs -r -P "$processors" -n 4 sh -c "$each" sh
    done
}

# Suites that compute have a lower priority than those that usually wait, which check deadlines.
in_lanes() { # run the suites that `suites` lists
    count=0 lanes=
    while [ $count -lt "$processors" ]; do
        (renice -n 4 -p "$(exec sh -c 'echo $PPID')" > /dev/null 2>&1; lane="work"; suites) &
        lanes="$lanes $!"
        count=$((count + 1))
    done
    for lane in wait wait; do (suites) & lanes="$lanes $!"; done
    wait $lanes
}

only="$*"
processors=$(nproc)
[ "$processors" -le 4 ] || processors=4
# Of the first tier, what depends on switches.
programs=$(for name in numbers algorithms threads allocations arena steady wire greetings collectives contract sentences packets \
    random; do echo "check-$name"; done)

suites() {
tier=check
suite layers             sh tests/layers.sh
suite layers-planted     sh tests/layers.sh planted
suite style              styled
suite words              sh tests/words.sh
suite words-planted      sh tests/words.sh planted
suite single             sh tests/build/test_single.sh
suite asserts            program plain test_asserts
suite check-members      sh tests/unit/test_members.sh 1000
suite check-numbers      program plain test_numbers
suite check-algorithms   scaled 0.2 program plain test_algorithms
brief check-threads      scaled 0.2 program plain test_threads
brief check-allocations  program plain test_allocations alone,threads,sim
suite check-arena        program plain test_arena
brief check-steady       program plain test_steady
brief check-wire         program plain test_wire
brief check-greetings    program plain test_handshakes
brief check-collectives  scaled 0.05 program plain test_collectives
suite check-contract     program plain test_contract threads,tcp-poll,sim 2
brief check-sentences    program plain test_sentences
brief check-packets      program plain test_packets threads,sim
suite check-random       program plain test_random

tier=test
suite instructions       counted
suite asserts-release    program release test_asserts
suite precision          program release test_precision
waits arithmetic         program asan test_arithmetic
suite convert            program asan test_convert
suite tuner              program asan test_tuner
waits shares             program asan test_shares
waits sites              program asan test_sites
suite tuning             program release test_tuning
suite tuning-asan        scaled 0.1 program asan test_tuning
suite topology           program asan test_topology
suite launchers          program asan test_launchers
suite sentences          program asan test_sentences
suite packets            program asan test_packets
suite manual             program asan test_manual
suite greetings          program asan test_handshakes
suite wire               program asan test_wire
suite threads            program asan test_threads
suite collectives        program asan test_collectives
suite memory             program asan test_memory
waits allocations        program asan test_allocations alone,threads,sim,tcp
suite arena              program asan test_arena
suite steady             program asan test_steady
suite requests           program asan test_requests
suite ahead              program asan test_ahead
suite unused             program asan test_unused
suite keyfile            program asan test_keyfile
waits meet               program asan test_shm_handshake
waits spaces             program asan test_spaces
waits shortages          program asan test_shortages
waits security           program asan test_security
waits failure            program release test_failure
waits quiet              program asan test_quiet
waits matrix             program release test_matrix
suite bykey              program release test_bykey
waits waiting            program asan test_waiting
waits orders             program asan test_orders
waits disagree           program asan test_disagree
suite queued             program asan test_queued
suite strides            program asan test_strides
suite leaf-runs          program asan test_leaf_runs
suite stores             program asan test_stores
suite eager              program asan test_eager
suite leaves             program asan test_leaves
suite leaves-planted     sh tests/collectives/leaves_planted.sh
suite busy               program asan test_busy
suite random             program asan test_random
suite misuse-tsan        program tsan test_misuse threads local,requests,groups,threads,ends
suite eager-tsan         program tsan test_eager threads
suite contract-asan      program asan test_contract threads,sim 3
waits run                sh tests/programs/test_run.sh
waits run-elastic        sh tests/programs/test_run_elastic.sh
waits linking            sh tests/build/test_linking.sh
suite readme             documented test_readme.sh
suite pages              documented test_pages.sh
suite examples           exemplified
suite demo               demonstrated
waits inference          sh tests/programs/test_inference.sh
suite stacks             program release test_stacks
suite locals             program asan test_locals
suite refused            program release test_refused
suite shared             program asan test_shared
suite simfaults          program release test_simfaults
suite gpt                program asan test_gpt

tier=rest
suite members            sh tests/unit/test_members.sh 30000 planted 12
suite proof              program release test_proof
suite contract           program release test_contract
suite emulated           sh tests/build/emulated.sh
suite torch              sh tests/bindings/test_torch.sh
suite bare               sh tests/build/test_bare.sh
suite bench-history      sh tests/programs/test_bench_history.sh
suite switches           sh tests/build/test_switches.sh
suite packages           sh tests/build/test_packages.sh
waits portable           sh tests/build/test_portable.sh
waits edge               sh tests/build/test_edge.sh
suite collectives-tsan   scaled 0.15 program tsan test_collectives threads,tcp-uring,hybrid
suite compile            sh tests/build/test_compile.sh
suite nccl               sh tests/transports/test_nccl.sh debug
suite mpi                sh tests/transports/test_mpi.sh
waits ssh                sh tests/programs/test_ssh.sh
suite misuse             program asan test_misuse
suite hosts              program asan test_hosts
suite bench              sh tests/programs/test_bench.sh
suite numbers            program asan test_numbers
suite exact              program asan test_exact
suite algorithms         program asan test_algorithms
suite threads-tsan       scaled 0.5 program tsan test_threads
suite mx                 program asan test_mx
suite mx-tsan            scaled 0.5 program tsan test_mx threads,lists,means
suite stacks-plain       program plain test_stacks
waits errors             program asan test_errors
waits faults             program asan test_faults
waits failure-tsan       program tsan test_failure tcp-poll,threads alive,orphans,abort,dump,threads
waits errors-tsan        program tsan test_errors threads,tcp-uring,hybrid
waits security-tsan      program tsan test_security handshakes,crowds,changes
waits middle             program asan test_middle
waits crowded            program asan test_crowded
waits liveness           program release test_liveness
waits intruders          program asan test_intruders
waits intruders-tsan     program tsan test_intruders endless,handshake
waits budget             program asan test_budget
waits lanes              program asan test_lanes
waits lanes-tsan         program tsan test_lanes settings,calls,leaving,cuts
suite fuzz               sh tests/transports/fuzz.sh
suite streams            program asan test_streams
suite hybrid             program asan test_hybrid
suite domain             program asan test_shm_domain
waits stopped            program asan test_stopped
waits segments           program asan test_segments
suite hybrid-tsan        program tsan test_hybrid sleep,deaths,leaks
suite sim                program asan test_sim
waits shrink             program release test_shrink
waits shrink-asan        scaled 0.25 program asan test_shrink poll,uring,hybrid modes,chance
waits elastic            program release test_elastic
waits elastic-asan       scaled 0.25 program asan test_elastic join,several,threads,hosts,wrong,many,replace,deaths,decisions,cuts
waits replace            program release test_replace
suite sim-elastic        program release test_sim_elastic
suite sim-elastic-asan   program asan test_sim_elastic 100 3
waits replace-asan       program asan test_replace 8
waits replace-tsan       program tsan test_replace 8
waits elastic-tsan       scaled 0.25 program tsan test_elastic join,several,threads,decisions,many,replace,table
waits agree              program release test_agree
waits agree-asan         scaled 0.25 program asan test_agree poll,hybrid,threads kills,chance
waits agree-tsan         scaled 0.25 program tsan test_agree hybrid,threads pairs,quiet,chance
waits retries            program release test_retries
waits retries-tsan       scaled 0.2 program tsan test_retries returns,chance
waits silent             program asan test_silent
suite bykey-asan         scaled 0.3 program asan test_bykey match,many,storm
suite bykey-tsan         scaled 0.3 program tsan test_bykey match,storm
suite soak               program asan test_soak 4
suite leaks              program release test_leaks
suite sim-large          program release test_sim 65536
suite arena-tsan         program tsan test_arena crowd,enough
waits allocations-hybrid program asan test_allocations hybrid
waits allocations-tsan   program tsan test_allocations threads
suite shared-tsan        program tsan test_shared
waits waiting-tsan       scaled 0.3 program tsan test_waiting
waits freed              program asan test_freed
waits freed-tsan         program tsan test_freed threads,tcp-poll barrier,test,any,send,source,all
suite identity           program asan test_identity
suite identity-tsan      scaled 0.5 program tsan test_identity
suite requests-tsan      program tsan test_requests
suite ahead-tsan         program tsan test_ahead threads,hybrid
suite background         program asan test_background
suite background-tsan    scaled 0.3 program tsan test_background hybrid
suite rails              program asan test_rails
suite rails-tsan         scaled 0.25 program tsan test_rails
suite random-tsan        scaled 0.5 program tsan test_random --world threads
suite contract-tsan      program tsan test_contract threads 3
suite random-dist        scaled 0.1 from_dist test_random
waits python             sh tests/bindings/test_python.sh
suite wheels             sh tests/bindings/test_wheels.sh
suite cpp                sh tests/bindings/test_cpp.sh
suite rust               sh tests/bindings/test_rust.sh
suite fortran            sh tests/bindings/test_fortran.sh
suite adapters           sh tests/programs/test_adapters.sh
waits perf               sh tests/programs/test_perf.sh
suite bench-tcp          sh tests/programs/test_bench_tcp.sh
suite gpt-pages          paged
suite small              env CPPFLAGS="-DCOLL_SMALL $CPPFLAGS" sh tests/run_all.sh asserts $programs
suite footprint          sh bench/footprint.sh check
}

watch &
watcher=$!
build_all
in_lanes
kill $watcher
if ls "$taken"/*/failed > /dev/null 2>&1; then # again, where a reader of the end alone sees it
    printf '\n---- what failed\n'
    cat "$taken"/*/failed
fi
set -- $(cat "$taken"/*/sum 2> /dev/null | awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }')
echo "$1 passed, $2 failed"
[ "$2" -eq 0 ]
