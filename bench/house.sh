#!/bin/sh
# The size of the house: how much there is to read, to compile and to run, here or side by side with a commit.
#   lines, files       of the headers: coll.h, coll_impl.h, core, transports, carriers
#   floors             headers in the longest chain of includes within core; -: one list includes all
#   upward includes    from a wing to one that it may not use, allowed ones as well (tests/layers.sh)
#   allowed            lines of tests/layers.allow
#   compile            seconds of the processor for the implementation, gcc -O2, the median of 3
#   text               bytes of code and constants in the object of that
#   instructions       of a repeated allreduce of 8 B, the shortest (bench/instructions.c of this tree); x86-64
#   usage: sh bench/house.sh [COMMIT]      in the root of the repository; -: that tree has no such thing
set -u
work=$(mktemp -d) || exit 1
here=$(pwd)
trap 'cd "$here"; [ -d "$work/then" ] && git worktree remove --force "$work/then"; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

cc=${CC:-gcc}
flags="-std=gnu11 -O2 -w -pthread"
echo '#include <liburing.h>' | $cc -E -x c - > "$work/none" 2>&1 && links="-luring" || links="-DCOLL_NO_URING"

headers() { find coll.h coll_impl.h core transports carriers -name '*.h' 2> "$work/none"; }

floors() { # of the headers of core that include one another: the longest chain
    headers | grep '^core/' | while read -r file; do sed -n "s|^#include \"\\(.*\\)\".*|${file##*/} \\1|p" "$file"; done | awk '
        { sub(/.*\//, "", $2); below[$1] = below[$1] " " $2; is_core[$1] = 1 }
        function depth(file, names, count, i, deep, most) {
            if (file in known) return known[file]
            known[file] = 1
            count = split(below[file], names, " ")
            for (i = 1; i <= count; i++) if (names[i] != "coll.h" && (deep = depth(names[i])) > most) most = deep
            return known[file] = most + 1
        }
        END { for (file in is_core) if (depth(file) > most) most = depth(file); print most ? most : "-" }'
}

upward() { # those that are new, and those that are allowed
    [ -f tests/layers.sh ] || { echo -; return; }
    { sh tests/layers.sh | sed -n 's/^layers: //p'; cat tests/layers.allow; } | grep -c '^include '
}

allowed() { if [ -f tests/layers.allow ]; then grep -vc '^#' tests/layers.allow; else echo -; fi; }

compile() { # seconds of the compiler and what it starts
    printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > "$work/all.c"
    for _ in 1 2 3; do
        sh -c "$cc $flags $links -I. -c '$work/all.c' -o '$work/all.o'; times" | tail -n 1
    done | awk '{ sub(/m/, " "); sub(/s/, ""); print $1 * 60 + $2 }' | sort -n | sed -n 2p
}

text() { size "$work/all.o" | awk 'NR == 2 { print $1 }'; }

instructions() { # threads | tcp
    flat='' # before a config had parts
    grep -q '^ *coll_tcp  *tcp;' coll.h || flat='s/config\.tcp\./config./; s/\.tcp = {\(.*\)} }/\1 }/'
    sed "s|\"../coll.h\"|\"coll.h\"|; $flat" "$here/bench/instructions.c" > "$work/calls.c"
    $cc $flags -I. "$work/calls.c" $links -lm -o "$work/instructions" 2> "$work/none" || { echo -; return; }
    timeout 60 "$work/instructions" "$1" allreduce 8 shortest || echo -
}

measure() {
    echo "lines of headers|$(headers | xargs cat | wc -l)"
    echo "files|$(headers | wc -l)"
    echo "floors of core|$(floors)"
    echo "upward includes|$(upward)"
    echo "allowed breaches|$(allowed)"
    echo "compile, s|$(compile)"
    echo "text, B|$(text)"
    echo "instructions, 8 B, threads|$(instructions threads)"
    echo "instructions, 8 B, TCP|$(instructions tcp)"
}

measure > "$work/here.txt"
if [ $# -eq 0 ]; then
    awk -F'|' '{ printf "%-28s %10s\n", $1, $2 }' "$work/here.txt"
    exit
fi
git worktree add --detach -q "$work/then" "$1" || exit 1
cd "$work/then" && measure > "$work/then.txt"
printf '%-28s %10s %10s\n' '' "$(git rev-parse --short HEAD)" here
paste -d'|' "$work/then.txt" "$work/here.txt" | awk -F'|' '{ printf "%-28s %10s %10s\n", $1, $2, $4 }'
