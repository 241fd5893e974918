#!/bin/sh
# abi.sh - what libcoll shows to programs: its symbols, and the layout of what they take (abidw).  Both are kept in the
# repository, since a library of the same minor version may add to them, and change nothing (docs/versions.md).
#   usage: abi.sh check|write     in the root of the repository.  check prints what is not as it was, and is 0 if all is
series=$(sed -n 's/^COLL_\([0-9.]*\) {/\1/p' packages/libcoll.map)
symbols=debian/libcoll$series.symbols layout=packages/libcoll.abi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
mkdir "$work/public" && cp coll.h $(sed -n 's/^#include "\(core\/contract\/[a-z_]*.h\)".*/\1/p' coll.h) "$work/public/" || exit 1

# The layout does not depend on how well it is optimised.
${CC:-cc} -std=c11 -g -O0 -DCOLL__ONE_TIER -fPIC -shared "-Wl,-soname,libcoll.so.$series" \
    -Wl,--version-script=packages/libcoll.map coll.c -o "$work/libcoll.so" -pthread || exit 1
{
    echo "libcoll.so.$series libcoll$series #MINVER#"
    echo "* Build-Depends-Package: libcoll-dev"
    nm -D --defined-only "$work/libcoll.so" | sed -n 's/.* [A-Z] \([A-Za-z0-9_.]*\)@@*\(COLL_[0-9.]*\)$/ \1@\2 '"$series.0/p" \
        | sed "s/^ COLL_$series .*//" | LC_ALL=C sort
} > "$work/symbols"
have_layout() { command -v abidw > /dev/null && command -v abidiff > /dev/null && [ "$(uname -m)" = x86_64 ]; }
layout_of() {
    abidw --headers-dir "$work/public" --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path \
        --no-show-locs --type-id-style hash "$work/libcoll.so"
}

case $1 in
write)
    cp "$work/symbols" "$symbols" || exit 1
    have_layout || { echo "abi: no abidw (abigail-tools), or not x86_64: $layout is as it was"; exit 1; }
    layout_of > "$layout" ;;
check)
    # The version at the end of a line is that which had the symbol first.
    sed -n 's/^ \([^ ]*\) .*/\1/p' "$symbols" > "$work/were"
    sed -n 's/^ \([^ ]*\) .*/\1/p' "$work/symbols" > "$work/are"
    diff "$work/were" "$work/are" > "$work/differ" || {
        echo "symbols (< were, > are; in $symbols):"; grep '^[<>]' "$work/differ"; exit 1; }
    have_layout || { echo "left out: layout (abigail-tools, on x86_64)"; exit 0; }
    layout_of > "$work/layout" && abidiff --no-added-syms "$layout" "$work/layout" ;;
*) echo "usage: abi.sh check|write" >&2; exit 2 ;;
esac
