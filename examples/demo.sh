#!/bin/sh
# Train the same network four times - one rank, threads, processes over TCP, and processes with
# 16-bit floats on the wire - and compare the weights bit for bit.
# usage: sh examples/demo.sh FOLDER      the folder of the built train_digits and coll-run
# Ends with status 1 when a run fails or a comparison does not hold.

bin=${1:?"usage: demo.sh FOLDER (of train_digits and coll-run)"}
train=$bin/train_digits
for program in "$train" "$bin/coll-run"; do
    [ -x "$program" ] || { echo "demo: there is no program $program"; exit 1; }
done
results=$(mktemp -d) || exit 1
trap 'rm -rf "$results"' EXIT
trap 'exit 130' INT TERM
failed=

# run NAME COMMAND...: show every fifth epoch, keep the result, a line of JSON, in $results/NAME.
run() {
    name=$1; shift
    : > "$results/$name"
    echo "$name: $*" | sed "s|$bin/||g"
    { "$@" --json || echo "demo: $name ended with status $?"; } 2>&1 |
        awk -v result="$results/$name" '
            /^\{/                                    { print > result; next }
            /^epoch/ && $2 != 1 && $2 % 5 != 0       { next }
                                                     { print "    " $0; fflush() }'
    echo
}

# get NAME FIELD: one value of a result.
get() { sed -n "s/.*\"$2\":\"\{0,1\}\([^,\"}]*\).*/\1/p" "$results/$1"; }

# check WHAT COMMAND...: one comparison, remembered when it does not hold.
check() {
    what=$1; shift
    if "$@"; then verdict=yes; else verdict=FAILED; failed="$failed${failed:+; }$what"; fi
    printf '  %-62s %s\n' "$what" "$verdict"
}

is_good()  { awk -v accuracy="$(get "$1" accuracy)" 'BEGIN { exit !(accuracy >= 0.95) }'; }
is_one()   { [ "$(get "$1" identical)" = true ]; }
is_same()  { [ -n "$(get "$1" weights)" ] && [ "$(get "$1" weights)" = "$(get "$2" weights)" ]; }
is_other() { [ -n "$(get "$1" weights)" ] && ! is_same "$1" "$2"; }

row() {
    awk -v ranks="$(get "$1" ranks)" -v wire="$(get "$1" wire)" -v how="$(get "$1" transport)" \
        -v loss="$(get "$1" loss)" -v accuracy="$(get "$1" accuracy)" \
        -v seconds="$(get "$1" seconds)" -v inside="$(get "$1" communication_seconds)" \
        -v bytes="$(get "$1" bytes_sent)" -v weights="$(get "$1" weights)" 'BEGIN {
        if (ranks == "") { print "  (no result)"; exit }
        if (ranks == 1) how = "alone"
        sent = bytes > 0 ? sprintf("%.2f MB", bytes / 1e6) : "-"
        low = accuracy < 0.95 ? "!" : " "
        share = seconds > 0 ? 100 * inside / seconds : 0
        printf "  %-24s %5d  %-4s  %6.4f  %6.1f %%%s  %7.2f  %15.0f %%  %17s  %s\n",
               how, ranks, wire, loss, 100 * accuracy, low, seconds, share, sent, weights }'
}

run alone    "$train"
run threads  "$train" -t 4
run tcp      "$bin/coll-run" -n 4 --no-prefix "$train"
run tcp-bf16 "$bin/coll-run" -n 4 --no-prefix "$train" --wire bf16

printf '  %-24s %5s  %-4s  %6s  %9s  %7s  %17s  %17s  %s\n' run ranks wire loss accuracy seconds \
       'in communication' 'bytes sent a rank' weights
for name in alone threads tcp tcp-bf16; do row $name; done
echo

for name in alone threads tcp tcp-bf16; do
    check "$name: at least 95 % of digits never learned from" is_good $name
done
for name in threads tcp tcp-bf16; do
    check "$name: the same bits on all ranks" is_one $name
done
check "4 threads and 4 processes: the same bits" is_same tcp threads
check "bf16 on the wire: other bits than f32" is_other tcp-bf16 tcp
echo
if [ -n "$failed" ]; then echo "demo: FAILED: $failed"; exit 1; fi
echo "demo: all 4 runs reached 95 %, all ranks agree, threads and TCP agree bit for bit"
