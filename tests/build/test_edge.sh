#!/bin/sh
# test_edge.sh - examples/edge: boards of 32-bit ARM on an Ethernet train one network, in namespaces on a switch.  Both kinds of
# messages end with the same bits on all boards and with the loss of the other; where the wire is slow, half the bytes are
# faster by far; and nothing of the network is left, also where the run is ended from outside.
#
#   usage: sh tests/build/test_edge.sh          skipped, with the reason, where no network can be made (not root)
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
PATH=$PATH:/usr/sbin:/sbin
passed=0 failed=0

check() { # name command...
    name=$1; shift
    if "$@"; then passed=$((passed + 1)); echo "ok - $name"; return; fi
    failed=$((failed + 1))
    echo "FAILED - $name: $(tail -n 8 "$dir/log" | tr '\n' '|')"
}

# Of the row of a wire: steps a second, the loss.
row() { awk -v wire="$1" -v field="$2" '$1 == wire { print $field }' "$dir/log"; }
holds() { awk -v a="$(row f32 "$1")" -v b="$(row bf16 "$1")" "BEGIN { exit !(a > 0 && b > 0 && ($2)) }"; }
agree() { [ "$(grep -c 'the same bits$' "$dir/log")" -eq 2 ]; }
nothing_left() { ! ip netns list | grep -q "^edge$1-"; }

# 80 ms of wire for a step of f32, 40 for one of bf16
RATE=15mbit sh examples/edge/run.sh 60 8 > "$dir/log" 2>&1 &
run=$!
wait $run
status=$?
if [ $status -eq 77 ]; then
    echo "skipped: $(tail -n 1 "$dir/log")"
    echo "0 passed, 0 failed"
    exit 0
fi
cat "$dir/log"
check "all boards end well" [ $status -eq 0 ]
check "the same bits on all boards, with f32 and with bf16" agree
check "it learns: both losses are below 0.6" holds 6 "a < 0.6 && b < 0.6"
check "bf16 in the messages costs less than a tenth of the loss" holds 6 "b - a < 0.1 * a && a - b < 0.1 * a"
check "half the bytes: at least 1.3 times the steps" holds 3 "b > 1.3 * a"
check "no namespace is left" nothing_left $run

# Ended from outside, while the boards train: rank 0 has met the others, and said so.
mkfifo "$dir/lines" || exit 1
sh examples/edge/run.sh 100000 > "$dir/lines" 2> "$dir/log" &
run=$!
exec 3< "$dir/lines"
while read -r line <&3; do
    echo "$line" >> "$dir/log"
    case $line in *" parameters, "*) kill -TERM $run; break ;; esac
done
cat <&3 >> "$dir/log"                             # until all writers have ended
wait $run
status=$?
check "ended from outside, in the middle of it" grep -q ' parameters, ' "$dir/log"
check "it ends then" [ $status -eq 1 ]
check "and leaves no namespace" nothing_left $run
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
