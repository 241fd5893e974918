#!/bin/sh
# The consensus of members is right in SEEDS worlds (1,000).  `planted`: each fault of members_planted.txt, put into it, is found
# within 10,000 worlds; with COUNT so many of them, drawn by SEED.  A million worlds, in some minutes:
# sh tests/unit/test_members.sh 1000000
#   usage: test_members.sh [SEEDS] [planted [COUNT [SEED]]]          COLL_TEST_SEED=... replays a seed
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

build() { # folder of the headers, program, options
    ${CC:-cc} -std=c11 $3 -Wno-unused-function "-DMEMBERSHIP=\"$1/coll_consensus.h\"" \
        "-DOUTCOME=\"$1/coll_outcome.h\"" tests/unit/test_members.c -o "$2" -pthread
}

build "$PWD/core/membership" "$work/members" "-O1 -g -Wall -Wextra -fsanitize=address,undefined" || exit 1
if "$work/members" "${1:-1000}"; then passed=1; else failed=1; fi
cp -r coll.h core "$work"
: > "$work/faults"

plant() { # expression: changes the copy; false: it changes nothing
    cp core/membership/*.h "$work/core/membership"
    sed -i "$1" "$work"/core/membership/*.h
    ! diff -r core/membership "$work/core/membership" > /dev/null
}

if [ "$2" = planted ]; then
    grep -v '^#' tests/unit/members_planted.txt > "$work/all"
    while IFS='|' read -r what expression; do
        plant "$expression" || { echo "changes nothing: $what"; failed=$((failed + 1)); }
    done < "$work/all"
    seed=${4:-$(date +%s)}
    awk -v count="${3:-1000}" -v seed="$seed" 'BEGIN { srand(seed) } { all[++n] = $0 }
        END { for (; count > 0 && n > 0; count--) { i = 1 + int(rand() * n); print all[i]; all[i] = all[n--] } }' \
        "$work/all" > "$work/faults"
    [ -z "$3" ] || echo "members: planted $3 $seed draws the same faults again"
fi
while IFS='|' read -r what expression; do
    plant "$expression" || continue
    if ! build "$work/core/membership" "$work/planted" "-O1 -w"; then
        failed=$((failed + 1))
    elif "$work/planted" 10000 > "$work/out" 2>&1; then
        echo "not found: $what"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done < "$work/faults"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
