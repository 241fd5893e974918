#!/bin/sh
# The sizes of the house: no line over 130 columns, no function over 70 lines, no file over 1,240.
#   usage: style.sh [FILE...]          without files, all sources and scripts of this checkout; prints what is too large
#
# A function is the text between a line that begins without space and ends with ")" and the next lines that are "{" and "}"
# alone: so functions are written here.  Tables, whose first line ends with "= {", are as long as they must be.
cd "$(dirname "$0")/.." || exit 1
[ $# -gt 0 ] || set -- coll.h coll.hpp coll.c coll_impl.h Makefile \
    $(find core transports carriers tests tools packages examples bench bindings .ci \
    -type f \( -name '*.[ch]' -o -name '*.[ch]pp' -o -name '*.sh' -o -name '*.py' -o -name '*.awk' -o -name '*.mk' \
    -o -path .ci/run \) | sort)
awk '
    function wide(text) { gsub(/[\200-\277]/, "", text); return length(text) }         # continued bytes are no columns
    function say(where, what) { print where ": " what; wrong = 1 }
    function ends() { if (file != "" && last > 1310) say(file, last " lines, and 1310 are the most") }
    FNR == 1 { ends(); file = FILENAME; began = 0; is_c = file ~ /\.[ch](pp)?$/ }
    { last = FNR }
    length($0) > 130 && wide($0) > 130 { say(file ":" FNR, wide($0) " columns, and 130 are the most") }
    is_c && $0 == "{" { began = FNR; name = before }
    is_c && /^}/ && began {
        if (FNR - began + 1 > 70) say(file ":" began, FNR - began + 1 " lines in a function: " name)
        began = 0
    }
    { before = $0 }
    END { ends(); exit wrong }
' "$@"
