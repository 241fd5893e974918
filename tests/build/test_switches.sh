#!/bin/sh
# test_switches.sh - the parts of the library that a program may leave out (core/base/coll_features.h).
#   parts      each profile, switch and list, and random sets of them, by gcc or clang: no warning; switches.c checks the
#              bits, and the error for each missing part; no symbol of such a part is in the program
#   refused    contradictions, removed switches, unknown words, switches that are 0: an #error with its sentence
#   handshakes   two ranks over TCP that were compiled with different parts and sizes
#   calls      whole tests of the library with a set of switches, drawn from five: the features that remain have the same bits
#
#   usage: [COLL_TEST_SEED=...] [COLL_TEST_SCALE=...] sh tests/build/test_switches.sh [PART...]
#
# The seed draws compilers, lists and sets.  Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed,
# N failed".  `make check` with COLL_SMALL is the suite `small`.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/rows.sh
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
seed=${COLL_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
scaled() { awk -v n="$1" -v scale="${COLL_TEST_SCALE:-1}" 'BEGIN { n = int(n * scale); print n < 1 ? 1 : n }'; }
W="-std=c11 -O0 -Wall -Wextra -Wpedantic -Wundef -Werror -DCOLL_NO_URING -DCOLL__ONE_TIER -DCOLL_ASSERT"
chosen=${*:-parts refused handshakes calls}
is_chosen() { case " $chosen " in *" $1 "*) ;; *) false ;; esac; }
echo "seed $seed"

ok() { passed=$((passed + 1)); echo "ok - $1"; }
wrong() { failed=$((failed + 1)); echo "FAILED - $1: $2" | tr '\n' '|'; echo; }
faults() { grep -E 'error|warning' "$dir/log" | head -n 3; }

# Conditions for missing parts, and symbols that are then not in the program.  *: gcc -O0 has them, because it keeps code behind
# a constant condition; +: clang -O0, too, behind a declaration or in a loop.
end='_(base|avx2|avx512)$'
cat > "$dir/symbols" <<ROWS
!COLL__HAS_SIM                        coll__sim_|coll__fiber_
!COLL__HAS_TCP                        coll__tcp_|coll__stream_|coll__handshake_|coll__heartbeat_|coll__hmac|coll__sha_
!COLL__HAS_THREADS                    coll__threads_|coll__domain_
!COLL__HAS_HYBRID                     coll__hybrid_
!COLL__HAS_SHM                        coll__memory_(open|map|make|move|spill|drain)
!COLL__HAS_MESSAGES                   coll__(messages_start|note_arrived|execution_|post_round|deliver)
!COLL__HAS_RECORDER                   coll__record_first|coll__json_|coll__dump_json
!COLL__HAS_BACKGROUND                 coll__background_(main|begin|move|rest|sleep)
*!COLL__HAS_CHOICE                    coll__(blocks_walk|broadcast_blocks)
+!COLL__HAS_CHOICE                    coll__query_of
*!COLL__HAS_CHOICE                    coll__(priced|cost_bruck|measure_(ping|wire))
!COLL__HAS_COUNTS                     coll__packet_(put|wrong|write)
!COLL__HAS_HIERARCHY                  coll__hierarchy_|coll__script_|coll__find_phases
*!COLL__HAS_NEIGHBOR                  coll__check_edges|coll__neighbor_
*!COLL__HAS_NETWORKS                  coll__network_(choose|text)|coll__ports_read
+!COLL__HAS_NETWORKS                  coll__rendezvous_(read|write)|coll__network_words
*!COLL__HAS_NETWORKS                  coll__launch_(slurm|hydra|master|one_host)|coll__nodelist_
!COLL__IS_WHOLE                       coll__list_
*!COLL__IS_WHOLE                      coll__columns_|coll__check_rows
+!COLL__IS_WHOLE                      coll__stripe_(land|chunk|head)
*!COLL__IS_WHOLE                      coll__(late_text|late_ranks|check_freed|wanted_gone)
*!COLL__HAS_SHRINK                    coll__(shrink_once|migration_|agreement_(run|open|propose|world)|dialling_|heard_)
*!COLL__HAS_SECURITY                  coll__hmac|coll__handshake_(prove|sum|hear_(proof|answer))|coll__(checked_|read_key_file)
*!COLL__HAS_ENV                       coll__launch_(row|hosts|halves)|coll__launchers
!COLL__HAS_TEXT                       coll__explain_error|coll__print_self|coll__start_failed
!COLL__HAS_OS                         pthread_create@
*!COLL__HAS_STOCHASTIC                coll__drawing_f
*!COLL__HAS_REPRODUCIBLE              coll__(grid_|combine_reproducible)
*!COLL__HAS_SCALE                     coll__(scale_f32|scale_f64)$end
*!COLL__HAS_ANY(COLL__TYPES_MIXED)    coll__(f32_to_bf16|load_f16|mx_odd)$end
*!COLL__HAS_ANY(COLL__TYPES_FP8)      coll__(f32_to_f8e4m3|f8e5m2_to_f32)$end
*!COLL__HAS_ANY(COLL__TYPES_MX)       coll__(mx_odd|f32_to_mxi8|through_mxf8e4m3)$end
*!COLL__HAS_ANY(COLL__TYPES_COMPLEX)  coll__(sum_c64|prod_c128)$end
*!COLL__HAS_ANY(COLL__TYPES_PAIRS)    coll__(minloc|maxloc)_
*!COLL__HAS_ANY(COLL__TYPES_INT8_16)  coll__(min_i8|max_u16|sum_u16)$end
ROWS
found() { # object or program, level, compiler flags...: symbols in it of what these leave out
    of=$1 level=$2 compiler=$3; shift 3
    case $level$compiler in -O0gcc) skipped='*+' ;; -O0clang) skipped=+ ;; *) skipped=- ;; esac
    patterns=$({ echo '#include "core/base/coll_features.h"'
        grep -v "^[$skipped]" "$dir/symbols" | sed 's/^[*+]//; s/^\([^ ]*\)  *\(.*\)/#if \1\npattern: \2\n#endif/'
    } | $compiler -std=c11 -I . "$@" -E -P -x c - | sed -n 's/^pattern: *//p' | tr -d ' ' | tr '\n' '|' | sed 's/|$//')
    # Rows stay: they say that a transport is missing.
    nm "$of" | awk '{ print $NF }' | grep -vxE 'coll__[a-z]*_row|coll__hybrid_open' > "$dir/all"
    [ -z "$patterns" ] || grep -E "^($patterns)" "$dir/all"
}

try() { # compiler name flags...
    compiler=$1 name="$2, $1"; shift 2
    if ! $compiler $W "$@" tests/build/switches.c -o "$dir/switches" -pthread -lm > "$dir/log" 2>&1; then
        wrong "$name" "$(faults)"
        return
    fi
    if ! timeout 60 "$dir/switches" > "$dir/log" 2>&1; then
        wrong "$name, as it runs" "$(tail -n 3 "$dir/log")"
        return
    fi
    left=$(found "$dir/switches" -O0 "$compiler" "$@")
    if [ -n "$left" ]; then wrong "$name: it is there" "$left"
    else ok "$name: $(tail -n 1 "$dir/log")"; fi
}

draw() { # number what: gcc or clang, a list, or a set of flags that do not contradict each other; the number's own
    awk -v seed="$seed" -v number="$1" -v what="$2" -v switches="$switches" '
        function some(words, least,    all, n, i, list) {
            n = split(words, all, " ")
            for (i = 1; i <= n; i++) if (rand() < 0.4) list = list (list == "" ? "" : ",") all[i]
            return list == "" ? least : list
        }
        function types() { # the test sums one of the first two
            return (rand() < 0.5 ? "i32," : "f32,") some("i8 i16 i64 u8 u16 u32 u64 bool f16 bf16 f8e4m3 f8e5m2 f64 c64 c128 " \
                "f32_i32 f64_i32 f64_i64 i32_i32 i64_i32 i64_i64 mxi8 mxf8e4m3 mxf8e5m2", "u64")
        }
        function kinds(others) {
            return some("barrier broadcast reduce allreduce reduce_scatter scan gather scatter allgather alltoall" others, \
                "reduce")
        }
        BEGIN {
            srand((seed + 7919 * number) % 2147483647); rand()
            if (what == "compiler") print rand() < 0.5 ? "gcc" : "clang"
            if (what == "transports") print some("threads tcp sim mpi", "tcp")
            if (what == "kinds") print kinds(" neighbor")
            if (what == "types") print types()
            if (what != "set") exit
            p = rand()
            profile = p < 0.15 ? "COLL_LEAST" : p < 0.3 ? "COLL_SMALL" : p < 0.4 ? "COLL_TINY" : ""
            if (profile) printf "-D%s ", profile
            n = split(switches, all, " ")
            for (i = 1; i <= n; i++) {
                if (rand() >= 0.3 || (all[i] == "COLL_NO_OS" && profile)) continue
                printf "-D%s ", all[i]
                has[all[i]] = 1
            }
            is_bare = profile == "COLL_TINY" || has["COLL_NO_OS"]
            if (!is_bare && profile != "COLL_LEAST" && rand() < 0.4)
                printf "-DCOLL_ONLY_TRANSPORTS=%s ", some("threads tcp sim mpi", "threads")
            if (rand() < 0.4) printf "-DCOLL_ONLY_KINDS=%s ", kinds(profile || has["COLL_NO_COUNTS"] ? "" : " neighbor")
            if (rand() < 0.4) printf "-DCOLL_ONLY_TYPES=%s", types()
        }'
}

# Boards are compiled with COLL_NO_MALLOC (test_bare.sh); COLL_NO_URING is of test_linking.sh.
every=$(sed -n 's/^ \*   \(COLL_NO_[A-Z]*\)  .*/\1/p' core/base/coll_features.h)
switches=$(echo "$every" | grep -vE '_(URING|TIERS|MALLOC)$' | tr '\n' ' ')
number=0
next() { number=$((number + 1)); }                # of a draw

parts() {
    for compiler in gcc clang; do                 # the patterns find the expected symbols
        try $compiler "everything"
        while read -r condition pattern; do
            if grep -qE "^($pattern)" "$dir/all"; then ok "everything, $compiler: $pattern"
            else wrong "everything, $compiler" "no symbol is $pattern ($condition)"; fi
        done < "$dir/symbols"
        for profile in COLL_LEAST COLL_SMALL COLL_TINY; do try $compiler $profile -D$profile; done
    done
    for switch in $switches; do next; try "$(draw $number compiler)" "$switch" "-D$switch"; done
    next; try "$(draw $number compiler)" "all switches" $(echo " $switches" | sed 's/ \(COLL\)/ -D\1/g')
    for list in tcp threads,tcp,hybrid,sim,mpi "$(draw 101 transports)" "$(draw 102 transports)"; do
        next; try "$(draw $number compiler)" "only $list" "-DCOLL_ONLY_TRANSPORTS=$list"
    done
    for list in barrier,broadcast,reduce,allreduce,reduce_scatter,scan,gather,scatter,allgather,alltoall,neighbor \
        "$(draw 103 kinds)" "$(draw 104 kinds)"; do
        next; try "$(draw $number compiler)" "only $list" "-DCOLL_ONLY_KINDS=$list"
    done
    types=i8,i16,i32,i64,u8,u16,u32,u64,bool,f16,bf16,f32,f64,f8e4m3,f8e5m2,c64,c128,mxi8,mxf8e4m3,mxf8e5m2
    for list in $types,f32_i32,f64_i32,f64_i64,i32_i32,i64_i32,i64_i64 f32 "$(draw 105 types)" "$(draw 106 types)"; do
        try clang "only $list" "-DCOLL_ONLY_TYPES=$list"
    done
    try clang "bare metal, only i32" -DCOLL_TINY -DCOLL_ONLY_TYPES=i32
    try clang "bare metal, only bf16" -DCOLL_TINY -DCOLL_ONLY_TYPES=bf16
    try gcc "the least sizes" $fewest $same
    try clang "large sizes" -DCOLL_BLOCK_BYTES=16384 -DCOLL_CACHED_CALLS=33 -DCOLL_OVERLAP=64 -DCOLL_RECORDS=1000 \
        -DCOLL_PACK_BYTES=1048576 -DCOLL_SHORT_BYTES=131072
    set=0
    while [ "$set" -lt "$(scaled 6)" ]; do
        flags=$(draw $((1000 + set)) set)
        try "$(draw $((2000 + set)) compiler)" "random $set: ${flags:-nothing left out}" $flags
        set=$((set + 1))
    done
    # Optimisers see more to warn of.  COLL_SMALL takes the longest, and is meant for -Os.
    for profile in -DCOLL_LEAST -DCOLL_SMALL -DCOLL_TINY; do
        for level in -Os $([ $profile = -DCOLL_SMALL ] || echo -O2); do
            next; compiler=$(draw $number compiler)
            if $compiler -std=c11 $level -Wall -Wextra -Wpedantic -Werror $profile -I . -c "$dir/impl.c" -o "$dir/impl.o" \
                > "$dir/log" 2>&1; then
                left=$(found "$dir/impl.o" $level "$compiler" $profile)
                if [ -n "$left" ]; then wrong "$compiler $level $profile: it is there" "$left"
                else ok "$compiler $level $profile"; fi
            else wrong "$compiler $level $profile" "$(faults)"; fi
        done
    done
}

# Sizes (core/base/coll_sizes.h): as small as possible; those that must be the same on all ranks.
fewest="-DCOLL_BLOCK_BYTES=256 -DCOLL_CACHED_BYTES=0 -DCOLL_CACHED_CALLS=1 -DCOLL_OVERLAP=1 -DCOLL_BINS=4"
fewest="$fewest -DCOLL_COPY_BYTES=64 -DCOLL_RECORDS=1 -DCOLL_REQUESTS=0"
same="-DCOLL_PACK_BYTES=64 -DCOLL_SHORT_BYTES=64 -DCOLL_CREDIT_BYTES=4096"

# ---- refused

printf '#include "coll.h"\n' > "$dir/use.c"
printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > "$dir/impl.c"
no() { # words flags...: no program with these compiles, and the compiler says the words
    words=$1; shift
    for compiler in gcc clang; do
        if $compiler -std=c11 -I . -fsyntax-only "$@" "$dir/use.c" > "$dir/log" 2>&1; then wrong "$*, $compiler" "it compiles"
        elif grep -q "error:.*$words" "$dir/log"; then ok "$*, $compiler: $words"
        else wrong "$*, $compiler" "not \"$words\": $(faults)"; fi
    done
}
refused() {
    for old in SIM TCP THREADS JOINED MIXED FP8 MX COMPLEX PAIRS INT8_16 NEIGHBORS TUNER LAUNCHERS STDIO MESSAGES LANES RECORDER \
        BACKGROUND LISTS STRIDES WATCH STOCHASTIC REPRODUCIBLE SCALE ARENA; do
        no "that was removed: use COLL_ONLY_TRANSPORTS" -DCOLL_NO_$old
    done
    for switch in $every LEAST SMALL TINY PORTABLE WITH_URING WITH_OPENSSL WITH_MPI WITH_NCCL; do
        no "is defined as 0, which" "-DCOLL_${switch#COLL_}=0"
    done
    no "choose one" -DCOLL_SMALL -DCOLL_TINY
    no "choose one" -DCOLL_LEAST -DCOLL_SMALL
    no "need an operating system" -DCOLL_SMALL -DCOLL_NO_OS
    no "the transport is your own" -DCOLL_NO_OS -DCOLL_ONLY_TRANSPORTS=tcp
    no "the transport is your own" -DCOLL_TINY -DCOLL_ONLY_TRANSPORTS=threads
    no "has threads alone" -DCOLL_LEAST -DCOLL_ONLY_TRANSPORTS=threads,tcp
    no "add mpi to COLL_ONLY_TRANSPORTS" -DCOLL_WITH_MPI -DCOLL_ONLY_TRANSPORTS=tcp
    no "which leave out io_uring" -DCOLL_WITH_URING -DCOLL_NO_URING
    no "which leave out io_uring" -DCOLL_WITH_URING -DCOLL_SMALL
    no "which leaves out TLS" -DCOLL_WITH_OPENSSL -DCOLL_NO_SECURITY
    no "names neighbor, which COLL_NO_COUNTS" -DCOLL_NO_COUNTS -DCOLL_ONLY_KINDS=neighbor
    no "names neighbor, which COLL_NO_COUNTS" -DCOLL_SMALL -DCOLL_ONLY_KINDS=neighbor,scan
    for word in "TRANSPORTS=threadz" "TRANSPORTS=tcp,threadz" "KINDS=allreduce,reduse" "TYPES=f32,int"; do
        no "has a word that" "-DCOLL_ONLY_$word"
        no "_${word##*[=,]}['’]" "-DCOLL_ONLY_$word"
    done
    for size in BLOCK_BYTES=300 PACK_BYTES=32 CACHED_CALLS=0 OVERLAP=65 BINS=5 SHORT_BYTES=100 COPY_BYTES=131072 \
        CREDIT_BYTES=3000 RECORDS=0; do
        if gcc -std=c11 -DCOLL_NO_URING "-DCOLL_$size" -I . -fsyntax-only "$dir/impl.c" > "$dir/log" 2>&1
        then wrong "COLL_$size" "it compiles"
        elif grep -q "COLL_${size%=*} is" "$dir/log"; then ok "COLL_$size is refused"
        else wrong "COLL_$size" "$(faults)"; fi
    done
    # A file of the program's says the same as its command line, also where a switch has no value.
    printf '#define COLL_SMALL\n#define COLL_NO_SECURITY 1\n#define COLL_ONLY_TYPES f32, i64\n' > "$dir/my_coll.h"
    gcc -std=c11 -I . -DCOLL_CONFIG_FILE="\"$dir/my_coll.h\"" -E -P "$dir/impl.c" > "$dir/file.i"
    gcc -std=c11 -I . -DCOLL_SMALL -DCOLL_NO_SECURITY -DCOLL_ONLY_TYPES=f32,i64 -E -P "$dir/impl.c" > "$dir/flags.i"
    if [ -s "$dir/file.i" ] && cmp "$dir/file.i" "$dir/flags.i" > "$dir/log"; then ok "COLL_CONFIG_FILE"
    else wrong "COLL_CONFIG_FILE" "$(cat "$dir/log")"; fi
    echo '#define COLL_NO_TUNER' > "$dir/my_coll.h"
    no "that was removed: use COLL_ONLY_TRANSPORTS" -DCOLL_CONFIG_FILE="\"$dir/my_coll.h\""
}

# ---- two ranks that left out different things, over TCP

meet() { # flags...: a program of tests/build/switch_meet.c, which is built once, by the faster compiler
    program="$dir/meet $*"
    [ -x "$program" ] || clang $W "$@" tests/build/switch_meet.c -o "$program" -pthread -lm > "$dir/log" 2>&1
}
met() { # name, words that rank 1 prints, flags of rank 0, flags of rank 1: both print "met", or rank 0 names the missing rank
    if ! meet $3 || ! { first=$program; meet $4; }; then
        wrong "$1" "$(faults)"
        return
    fi
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export COLL_SIZE=2 COLL_ADDR="127.0.0.1:$port"
    COLL_RANK=1 timeout 60 "$program" > "$dir/said1" 2>&1 &
    COLL_RANK=0 timeout 60 "$first" > "$dir/said0" 2>&1
    wait $!
    unset COLL_SIZE COLL_ADDR
    if grep -q "$2" "$dir/said1" && grep -qE '^met$|these ranks have not come: 1' "$dir/said0"; then ok "$1: $2"
    else wrong "$1" "$(head -n 2 "$dir/said0") | $(head -n 2 "$dir/said1")"; fi
}
handshakes() {
    met "small meets small" "^met$" -DCOLL_SMALL -DCOLL_SMALL
    met "small meets what chooses as it does" "^met$" -DCOLL_SMALL -DCOLL_NO_HIERARCHY
    met "what chooses as small does meets it" "^met$" -DCOLL_NO_HIERARCHY -DCOLL_SMALL
    met "small and everything" COLL_NO_HIERARCHY -DCOLL_SMALL ""
    met "by hosts and not" COLL_NO_HIERARCHY -DCOLL_NO_HIERARCHY ""
    met "without keys and with them" "^met$" -DCOLL_NO_SECURITY ""
    met "with a choice and without it" COLL_NO_CHOICE "" -DCOLL_NO_CHOICE
    met "sizes that may differ" "^met$" "" "$fewest"
    met "sizes that may not" COLL_PACK_BYTES "" -DCOLL_SHORT_BYTES=1024
    met "equal sizes" "^met$" "$same" "$same $fewest"
}

# ---- whole tests.  available.h has the features; for the others they require the error that names the switch.

calls() {
    config=plain given=$CPPFLAGS
    all_calls=$(scaled 1)
    for set in $(awk -v seed="$seed" 'BEGIN { srand(seed % 2147483647); for (i = 1; i <= 5; i++) print rand(), i }' | sort \
        | awk -v most="$all_calls" 'NR <= most { print $2 }'); do
        case $set in
        1)  CPPFLAGS="-DCOLL_ONLY_TYPES=i8,i16,i32,i64,u8,u16,u32,u64,bool,f32,f64,f32_i32,f64_i32,f64_i64,i32_i32,i64_i64 $given"
            row 1    test_contract threads,tcp-poll 2
            row 1    test_numbers ;;
        2)  CPPFLAGS="-DCOLL_NO_CHOICE $given"
            row 1    test_contract threads,tcp-poll,sim 3 ;;
        3)  CPPFLAGS="-DCOLL_NO_TEXT -DCOLL_NO_ENV $given"        # sentences are what test_numbers, among others, is about
            row 1    test_contract threads,tcp-poll,sim 2 ;;
        4)  CPPFLAGS="-DCOLL_ONLY_TRANSPORTS=threads $given"
            row 1    test_contract threads,tcp-poll,sim 3 ;;
        5)  CPPFLAGS="-DCOLL_ONLY_KINDS=broadcast,scatter -DCOLL_NO_COUNTS $given"
            row 1    test_contract threads,tcp-poll,sim 2
            row 1    test_numbers ;;
        esac
        row 0.02 test_collectives
        row 0.2  test_random
    done
}

for part in parts refused handshakes calls; do if is_chosen $part; then $part; fi; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
