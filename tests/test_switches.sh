#!/bin/sh
# test_switches.sh - what may be left out of the library (core/base/coll_parts.h, coll_parts_types.h): each switch alone, each
# profile, and random sets of them are compiled without a warning, by gcc and clang, and what is left is run (tests/switches.c):
# right bits over every transport and of every type that is there, and a sentence for each that is not.  No symbol of what was
# left out is in the program.
#
#   usage: [COLL_TEST_SEED=...] [COLL_TEST_SCALE=...] sh tests/test_switches.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
seed=${COLL_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
sets=$(awk -v scale="${COLL_TEST_SCALE:-1}" 'BEGIN { n = int(20 * scale); print n < 1 ? 1 : n }')
W="-std=c11 -O0 -Wall -Wextra -Wpedantic -Werror -DCOLL_NO_URING -DCOLL__ONE_TIER -DCOLL_ASSERT"
passed=0 failed=0
echo "seed $seed"

ok() { passed=$((passed + 1)); echo "ok - $1"; }
wrong() { failed=$((failed + 1)); echo "FAILED - $1: $2" | tr '\n' '|'; echo; }

# Which symbols must not be there, by switch.  The rows that say so are those that stay.
symbols_of() {
    case $1 in
    COLL_NO_SIM) echo 'coll__sim_|coll__fiber_' ;;
    COLL_NO_TCP) echo 'coll__tcp_|coll__stream_|coll__greet_|coll__heartbeat_|coll__hmac|coll__sha_' ;;
    COLL_NO_THREADS) echo 'coll__threads_|coll__hub_' ;;
    COLL_NO_JOINED) echo 'coll__joined_' ;;
    COLL_NO_SHM) echo 'coll__memory_(open|map|make|move|spill|drain)' ;;
    COLL_NO_LANES) echo 'coll__strand_(land|chunk|head)' ;;
    COLL_NO_RECORDER) echo 'coll__record_first|coll__json_|coll__dump_json' ;;
    COLL_NO_BACKGROUND) echo 'coll__background_(main|begin|move|nap|rest|sleep)' ;;
    COLL_NO_TUNER) echo 'coll__priced|coll__cost_bruck|coll__measure_(ping|wire)' ;;
    COLL_NO_CHOICE) echo 'coll__(blocks_walk|broadcast_blocks|query_of|has_algorithm)' ;;
    COLL_NO_MESSAGES) echo 'coll__(messages_start|note_arrived|execution_|post_round|deliver)' ;;
    COLL_NO_COUNTS) echo 'coll__(begin|share|end)_reduce_scatterv' ;;
    COLL_NO_LISTS) echo 'coll__list_' ;;
    COLL_NO_STRIDES) echo 'coll__columns_|coll__check_rows' ;;
    COLL_NO_SHRINK) echo 'coll__(shrink_once|exodus_|agreement_(run|open|propose|world)|dialling_|heard_|attendee_)' ;;
    COLL_NO_WATCH) echo 'coll__(late_text|late_ranks|check_freed|wanted_gone)' ;;
    COLL_NO_NEIGHBORS) echo 'coll__check_edges|coll__neighbor_' ;;
    COLL_NO_LAUNCHERS) echo 'coll__launch_(slurm|hydra|master|one_host)|coll__nodelist_|coll__network_words' ;;
    COLL_NO_NETWORKS) echo 'coll__network_(word|next|excepts|choose|text)|coll__ports_read|coll__rendezvous_(read|write|parse)' ;;
    COLL_NO_SECURITY) echo 'coll__hmac|coll__greet_(prove|sum|hear_proof|hear_answer)|coll__checked_|coll__read_key_file' ;;
    COLL_NO_ENV) echo 'coll__launch_(row|hosts|halves)|coll__launchers' ;;
    COLL_NO_TEXT) echo 'coll__explain_error|coll__print_self|coll__start_failed' ;;
    COLL_NO_ARENA) echo 'coll__arena_(allocate|free|of)|coll__hole_' ;;
    COLL_NO_STDIO) echo 'coll_dump' ;;
    COLL_NO_OS) echo 'pthread_create@' ;;
    COLL_NO_MIXED) echo "coll__(f32_to_bf16|load_f16|mx_odd)$end" ;;
    COLL_NO_FP8) echo "coll__(f32_to_f8e4m3|f8e5m2_to_f32|f32_to_mxf8e5m2)$end" ;;
    COLL_NO_MX) echo "coll__(mx_odd|f32_to_mxi8|through_mxf8e4m3)$end" ;;
    COLL_NO_COMPLEX) echo "coll__(sum_c64|prod_c128)$end" ;;
    COLL_NO_PAIRS) echo 'coll__(minloc|maxloc)_' ;;
    COLL_NO_INT8_16) echo "coll__(min_i8|max_u16|sum_u16)$end" ;;
    COLL_NO_STOCHASTIC) echo 'coll__stochastic_f' ;;
    COLL_NO_REPRODUCIBLE) echo 'coll__(grid_|combine_reproducible)' ;;
    COLL_NO_SCALE) echo "coll__(scale_f32|scale_f64)$end" ;;
    COLL_NO_HIERARCHY) echo 'coll__hierarchy_|coll__script_|coll__staged_|coll__find_stages' ;;
    esac
}
rows='coll__[a-z]*_row|coll__joined_open'
end='_(base|avx2|avx512)$'
constants=$(sed -n 's/^ \*   \(COLL_NO_[A-Z0-9_]*\)  *.*/\1/p' core/base/coll_parts_types.h)

defined() { # flags...: the switches that these come to
    echo '#include "core/base/coll_parts.h"' | gcc -std=c11 "$@" -I . -E -dM -x c - \
        | awk '/^#define COLL_NO_[A-Z0-9_]* / { print $2 }'
}

try() { # name, flags...
    name=$1; shift
    for compiler in gcc clang; do
        if ! $compiler $W "$@" tests/switches.c -o "$dir/switches" -pthread -lm > "$dir/log" 2>&1; then
            wrong "$name, $compiler" "$(grep -E 'error|warning' "$dir/log" | head -n 3)"
            continue
        fi
        if ! timeout 60 "$dir/switches" > "$dir/log" 2>&1; then
            wrong "$name, $compiler, as it runs" "$(tail -n 3 "$dir/log")"
            continue
        fi
        left=
        nm "$dir/switches" | awk '{ print $NF }' | grep -vxE "$rows" > "$dir/all"
        for switch in $(defined "$@"); do
            pattern=$(symbols_of "$switch")       # gcc keeps what a constant hides, unless it optimises
            case "$compiler $constants COLL_NO_WATCH " in gcc*"$switch"*) continue ;; esac
            [ -z "$pattern" ] || left="$left$(grep -E "^($pattern)" "$dir/all")"
        done
        if [ -n "$left" ]; then wrong "$name, $compiler: it is there" "$left"
        else ok "$name, $compiler: $(tail -n 1 "$dir/log")"; fi
    done
}

# The patterns find what they are to find: with nothing left out each of them is there.
switches="$(sed -n 's/^ \*   \(COLL_NO_[A-Z]*\)  .*/\1/p' core/base/coll_parts.h | grep -v -e COLL_NO_URING -e COLL_NO_TIERS)
$constants"
try "everything"
for switch in $switches; do
    pattern=$(symbols_of "$switch")
    if [ -n "$pattern" ] && grep -qE "^($pattern)" "$dir/all"; then ok "there without $switch"
    else wrong "there without $switch" "no symbol is ${pattern:-told of}"; fi
done

for switch in $switches; do try "$switch" "-D$switch"; done
try COLL_SMALL -DCOLL_SMALL
try COLL_TINY -DCOLL_TINY
for list in threads tcp sim threads,tcp sim,threads tcp,sim threads,tcp,joined,sim,mpi mpi; do
    try "only $list" "-DCOLL_ONLY_TRANSPORTS=$list"
done
try "all switches" $(echo "$switches" | sed 's/^/-D/')
for kinds in barrier broadcast,reduce scan,gather reduce_scatter,alltoall neighbor \
    barrier,broadcast,reduce,allreduce,reduce_scatter,scan,gather,scatter,allgather,alltoall,neighbor; do
    try "only $kinds" "-DCOLL_ONLY_KINDS=$kinds"
done

for types in f32 i64,bool f64,c128 bf16,f8e4m3,mxi8 c64,f32_i32 \
    i8,i16,i32,i64,u8,u16,u32,u64,bool,f16,bf16,f32,f64,f8e4m3,f8e5m2,c64,c128,mxi8,mxf8e4m3,mxf8e5m2,f32_i32,i64_i64; do
    try "only $types" "-DCOLL_ONLY_TYPES=$types"
done
try "bare metal, only i32" -DCOLL_TINY -DCOLL_ONLY_TYPES=i32
try "bare metal, only bf16" -DCOLL_TINY -DCOLL_ONLY_TYPES=bf16

# Optimisers see more to warn of.
least="-DCOLL_ONLY_TRANSPORTS=threads -DCOLL_ONLY_TYPES=f32 -DCOLL_ONLY_KINDS=allreduce -DCOLL_NO_TUNER -DCOLL_NO_TIERS
       -DCOLL_NO_HIERARCHY -DCOLL_NO_RECORDER -DCOLL_NO_BACKGROUND -DCOLL_NO_ENV -DCOLL_NO_TEXT -DCOLL_NO_MESSAGES
       -DCOLL_NO_LISTS -DCOLL_NO_STRIDES -DCOLL_NO_COUNTS -DCOLL_NO_SHRINK -DCOLL_NO_WATCH"
printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > "$dir/impl.c"
for level in -O2 -Os; do
    for profile in "-DCOLL_SMALL" "$least"; do
        for compiler in gcc clang; do
            if $compiler -std=c11 $level -Wall -Wextra -Wpedantic -Werror -DCOLL_NO_URING $profile -I . -c "$dir/impl.c" \
                -o "$dir/impl.o" > "$dir/log" 2>&1; then ok "$compiler $level $profile"
            else wrong "$compiler $level $profile" "$(grep -E 'error|warning' "$dir/log" | head -n 3)"; fi
        done
    done
done

# Two ranks that left out different things, over TCP.
met() { # name, words that rank 1 prints, flags of rank 0, flags of rank 1: both print "met", or rank 0 names who has not come
    for rank in 0 1; do
        [ $rank -eq 0 ] && flags=$3 || flags=$4
        if ! gcc $W $flags tests/switch_meet.c -o "$dir/meet$rank" -pthread -lm > "$dir/log" 2>&1; then
            wrong "$1: rank $rank" "$(grep -E 'error|warning' "$dir/log" | head -n 3)"
            return
        fi
    done
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    export COLL_SIZE=2 COLL_ADDR="127.0.0.1:$port"
    COLL_RANK=1 timeout 60 "$dir/meet1" > "$dir/said1" 2>&1 &
    COLL_RANK=0 timeout 60 "$dir/meet0" > "$dir/said0" 2>&1
    wait $!
    unset COLL_SIZE COLL_ADDR
    if grep -q "$2" "$dir/said1" && grep -qE '^met$|these ranks have not come: 1' "$dir/said0"; then ok "$1: $2"
    else wrong "$1" "$(head -n 2 "$dir/said0") | $(head -n 2 "$dir/said1")"; fi
}
alike="-DCOLL_NO_HIERARCHY"
met "small meets small" "^met$" -DCOLL_SMALL -DCOLL_SMALL
met "small meets what chooses as it does" "^met$" -DCOLL_SMALL "$alike"
met "what chooses as small does meets it" "^met$" "$alike" -DCOLL_SMALL
met "small and everything" COLL_NO_HIERARCHY -DCOLL_SMALL ""
met "without keys and with them" "^met$" -DCOLL_NO_SECURITY ""
met "with the model and without it" COLL_NO_TUNER "" -DCOLL_NO_TUNER
met "by hosts and not" COLL_NO_HIERARCHY -DCOLL_NO_HIERARCHY ""

# Sizes (core/base/coll_sizes.h): as small as may be, others, what is out of range; those marked * are alike on ranks that meet.
fewest="-DCOLL_BLOCK_BYTES=256 -DCOLL_CACHED_BYTES=0 -DCOLL_CACHED_CALLS=1 -DCOLL_ABREAST=1 -DCOLL_BINS=4"
fewest="$fewest -DCOLL_COPY_BYTES=64 -DCOLL_RECORDS=1 -DCOLL_REQUESTS=0"
alike="-DCOLL_PACK_BYTES=64 -DCOLL_SHORT_BYTES=64 -DCOLL_CREDIT_BYTES=4096"
try "the least sizes" $fewest $alike
try "large sizes" -DCOLL_BLOCK_BYTES=16384 -DCOLL_CACHED_CALLS=33 -DCOLL_ABREAST=64 -DCOLL_RECORDS=1000 \
    -DCOLL_PACK_BYTES=1048576 -DCOLL_SHORT_BYTES=131072
met "sizes that may differ" "^met$" "" "$fewest"
met "sizes that may not" COLL_PACK_BYTES "" -DCOLL_SHORT_BYTES=1024
met "sizes that are alike" "^met$" "$alike" "$alike $fewest"
for size in BLOCK_BYTES=300 PACK_BYTES=32 CACHED_CALLS=0 ABREAST=65 BINS=5 SHORT_BYTES=100 COPY_BYTES=131072 CREDIT_BYTES=3000 \
            RECORDS=0; do
    if gcc -std=c11 -DCOLL_NO_URING "-DCOLL_$size" -fsyntax-only tests/switches.c > "$dir/log" 2>&1
    then wrong "COLL_$size" "it compiles"
    elif grep -q "COLL_${size%=*} is" "$dir/log"; then ok "COLL_$size is refused"
    else wrong "COLL_$size" "$(head -n 3 "$dir/log")"; fi
done

for list in thread tcp,threadz; do                # a word that is none is told, by the compiler
    if gcc -std=c11 "-DCOLL_ONLY_TRANSPORTS=$list" -fsyntax-only tests/switches.c > "$dir/log" 2>&1
    then wrong "only $list" "it compiles"
    elif grep -q "is a list of some of threads" "$dir/log"; then ok "only $list is refused"
    else wrong "only $list" "$(head -n 3 "$dir/log")"; fi
done

for types in f33 f32,int; do
    if gcc -std=c11 "-DCOLL_ONLY_TYPES=$types" -fsyntax-only tests/switches.c > "$dir/log" 2>&1
    then wrong "only $types" "it compiles"
    elif grep -q "is a list of names of types" "$dir/log"; then ok "only $types is refused"
    else wrong "only $types" "$(head -n 3 "$dir/log")"; fi
done

number=0
while [ $number -lt "$sets" ]; do                 # the set of a number is the seed's, whichever sets came before
    set=$(echo "$switches" | awk -v seed="$seed" -v number="$number" '
        BEGIN { srand((seed + 7919 * number) % 2147483647); if (rand() < 0.3) printf " -DCOLL_SMALL" }
        rand() < 0.4 { printf " -D%s", $1 }')
    try "random $number:${set:- none}" $set
    number=$((number + 1))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
