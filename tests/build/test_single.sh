#!/bin/sh
# test_single.sh - single/coll.h is what the parts make, byte for byte, and coll.h and the newest heading of CHANGELOG.md are of
# one version; and a copy with one fault of each sort is not let through.
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

agrees() { # folder: says what is wrong there
    awk -f tools/amalgamate.awk "$1/coll.h" > "$work/made.h" || return 1
    cmp -s "$work/made.h" "$1/single/coll.h" && return
    echo "single/coll.h is not what the parts make: run make dist, and commit single/coll.h with what was changed"
    return 1
}

if agrees . > "$work/said" 2>&1; then passed=1; echo "ok - single/coll.h is what the parts make"
else failed=1; echo "FAILED - single/coll.h: $(cat "$work/said")"; fi

# The copy is right before each fault is planted.
planted() { # name, command that plants a fault into the copy
    rm -rf "$work/copy" && mkdir -p "$work/copy/single"
    cp -r coll.h coll_impl.h CHANGELOG.md core transports carriers "$work/copy"
    awk -f tools/amalgamate.awk "$work/copy/coll.h" > "$work/copy/single/coll.h"
    if agrees "$work/copy" > "$work/said" 2>&1 && (cd "$work/copy" && eval "$2") && ! agrees "$work/copy" > "$work/said" 2>&1
    then passed=$((passed + 1)); echo "ok - found: $1"
    else failed=$((failed + 1)); echo "FAILED - not found: $1: $(cat "$work/said")"; fi
}
change() { sed "$1" "$2" > changed && ! cmp -s changed "$2" && mv changed "$2"; }
if [ $failed -eq 0 ]; then
    planted "one byte of the single file" "change '\$s/endif/endiF/' single/coll.h"
    planted "one byte of a part" "echo >> core/algorithms/coll_tree.h"
    planted "a version of coll.h" "change 's/^\\(#define COLL_VERSION_PATCH\\) .*/\\1 99/' coll.h"
    planted "a version of CHANGELOG.md" "change 's/^## 0\\./## 9./' CHANGELOG.md"
    planted "a date of CHANGELOG.md" "change 's/^## \\(0[0-9.]*\\),.*/## \\1, some day/' CHANGELOG.md"
    planted "a version of the single file" "change 's/^\\(#define COLL_VERSION_PATCH\\) .*/\\1 99/' single/coll.h"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
