#!/bin/sh
# The consensus of members is right in SEEDS worlds (1,000).  Each fault of members_planted.txt, put into it, is found in 20,000.
#   usage: test_members.sh [SEEDS]
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

build() { # header, program, options
    ${CC:-cc} -std=c11 $3 "-DMEMBERSHIP=\"$1\"" tests/unit/test_members.c -o "$2" -pthread
}

build "$PWD/core/membership/coll_consensus.h" "$work/members" "-O1 -g -Wall -Wextra -fsanitize=address,undefined" || exit 1
"$work/members" "${1:-1000}" || failed=$((failed + 1))
cp core/membership/*.h "$work"
sound=core/membership/coll_consensus.h
while IFS='|' read -r what expression; do
    case $what in "#"*) continue ;; esac
    sed "$expression" $sound > "$work/coll_consensus.h"
    if cmp -s $sound "$work/coll_consensus.h"; then
        echo "changes nothing: $what"
        failed=$((failed + 1))
        continue
    fi
    build "$work/coll_consensus.h" "$work/planted" "-O1 -w" || { failed=$((failed + 1)); continue; }
    if "$work/planted" 20000 > "$work/out" 2>&1; then
        echo "not found: $what"
        failed=$((failed + 1))
    else
        passed=$((passed + 1))
    fi
done < tests/unit/members_planted.txt
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
