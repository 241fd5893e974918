#!/bin/sh
# test_inference.sh - examples/inference, on threads, processes that share memory and processes that talk TCP: sums and logits
# are right, all ranks have the same bits, and later sums of tensors allocate nothing.  Speed is not checked.
#   usage: [CC=cc] sh tests/programs/test_inference.sh
#
# Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
bin=$(folder release)
make --no-print-directory "$bin/coll-run" "$bin/inference/tensors" "$bin/inference/workers" || exit 1
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do case $name in COLL_TEST_*) ;; *) unset "$name" ;; esac; done
passed=0 failed=0

check() { # name rows pattern command...: succeeds, and so many lines of its output match
    name=$1 rows=$2 pattern=$3; shift 3
    if timeout 120 "$@" > "$out" 2>&1 && [ "$(grep -cE "$pattern" "$out")" -eq "$rows" ]; then
        passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); echo "FAILED - $name: $(tail -n 12 "$out" | tr '\n' '|')"; fi
}
refused() { # sentence command...: ends with 2 and says so
    sentence=$1; shift
    "$@" > "$out" 2>&1
    if [ $? -eq 2 ] && grep -q "$sentence" "$out"; then passed=$((passed + 1)); echo "ok - $sentence"
    else failed=$((failed + 1)); echo "FAILED - $sentence: $(cat "$out")"; fi
}

sums='^ +(16|32|64) .* sums right, bits the same, allocations 0 and 0$'
logits='^(coll f32|coll bf16|coll mxi8|star f32) .* tokens/s .* right, the same bits$'
for ranks in 2 3 8; do
    together="$bin/coll-run -n $ranks --no-prefix"
    # shellcheck disable=SC2086
    {
    check "tensors: $ranks threads" 3 "$sums" "$bin/inference/tensors" -t $ranks 20
    check "tensors: $ranks processes" 3 "$sums" $together "$bin/inference/tensors" 20
    check "tensors: $ranks processes, TCP" 3 "$sums" env COLL_SHARE=off $together "$bin/inference/tensors" 20
    check "workers: $ranks threads" 4 "$logits" "$bin/inference/workers" -t $ranks 24
    check "workers: $ranks processes" 4 "$logits" $together "$bin/inference/workers" 24
    check "workers: $ranks processes, TCP" 4 "$logits" env COLL_SHARE=off $together "$bin/inference/workers" 24
    }
done
check "workers: more ranks than heads" 4 "$logits" "$bin/inference/workers" -t 11 8
check "tensors: what is not summed is said" 3 '^refused: .*(not contiguous|of type 2|over a wire of f32)' \
    "$bin/inference/tensors" -t 2 1
refused "usage: tensors" "$bin/inference/tensors" nothing
refused "usage: workers" "$bin/inference/workers" -t 2 257

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
