#!/bin/sh
# leaves_planted.sh - test_leaves finds another order of additions: in the sum of a rank, and between ranks.  Each fault is
# planted in a copy of the library, which is compiled with the test; the test must fail there, and must pass without a fault.
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
passed=0 failed=0

# plant NAME STATUS FILE SED: the status that the test has to end with
plant() {
    rm -rf "$work/copy" && mkdir "$work/copy"
    cp -r coll.c coll.h coll_impl.h core transports carriers tests "$work/copy"
    sed -i "$4" "$work/copy/$3"
    if [ -n "$4" ] && cmp -s "$3" "$work/copy/$3"; then echo "$1: nothing was planted"; failed=$((failed + 1)); return; fi
    (cd "$work/copy" && compile="${CC:-cc} -std=c11 -DCOLL_ASSERT -DCOLL__ONE_TIER" && $compile -O0 -c coll.c \
        && $compile -O1 -isystem . tests/collectives/test_leaves.c coll.o -o test -pthread -lm) \
        > "$work/log" 2>&1 || { cat "$work/log"; failed=$((failed + 1)); return; }
    (cd "$work/copy" && ./test alone,sim 8) > "$work/log" 2>&1
    status=$?
    if [ $status -eq "$2" ]; then passed=$((passed + 1)); else tail -n 5 "$work/log"; failed=$((failed + 1)); fi
    echo "$1: status $status, $2 is right"
}

plant "no fault" 0 core/numbers/coll_leaf_sum.h ""
plant "a rank adds to its first node first" 1 core/numbers/coll_leaf_sum.h \
    's/coll__run_node(s, s->depth - k) + at;/coll__run_node(s, s->depth - 1 - carries + k) + at;/'
plant "ranks add the parts of a sum in another order" 1 core/algorithms/coll_leaves.h \
    's/(int)(first >> level);/(int)(first >> level) ^ 1;/'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
