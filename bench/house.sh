#!/bin/sh
# The size of the library: source, compilation and instructions, of this tree, or compared with a commit.
#   lines, files       of the headers: coll.h, coll_impl.h, core, transports, carriers
#   switches           COLL_NO_... that a program may set (core/base/coll_feature*.h)
#   floors             headers in the longest chain of includes within core; -: one list includes all
#   upward includes    from a folder to one that it may not use, allowed ones as well (tests/layers.sh)
#   allowed            lines of tests/layers.allow
#   forward            declarations in transports/tcp of functions that another file defines (needs Universal Ctags)
#   README, words      lines of README.md; what tests/words.sh finds
#   compile            seconds of the processor for the implementation, gcc -O2, the median of 3; and divided by those of 0.2.0,
#                      which is compiled in turns with it
#   text               bytes of code and constants in the object of that
#   everything, small  bytes of code and constants of a program with one allreduce of f32, as in docs/size.md (bench/footprint.sh)
#   tiny               bytes of tests/build/bare_floor.c: only one allreduce of f32, on a Cortex-M3; and whether it links for
#                      processors without atomic instructions
#   instructions       of a repeated allreduce of 8 B, the shortest (bench/instructions.c of this tree); x86-64
#   usage: sh bench/house.sh [COMMIT]      in the root of the repository; -: not in that tree, or a compiler is missing
set -u
work=$(mktemp -d) || exit 1
here=$(pwd)
first=aba5988                                     # 0.2.0
trap 'cd "$here"; for tree in then first; do [ -d "$work/$tree" ] && git worktree remove --force "$work/$tree"; done
    rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

cc=${CC:-gcc}
flags="-std=gnu11 -O2 -w -pthread"
apart="-ffunction-sections -fdata-sections -Wl,--gc-sections"
echo '#include <liburing.h>' | $cc -E -x c - > "$work/none" 2>&1 && links="-luring" || links="-DCOLL_NO_URING"
printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > "$work/all.c"
sed -n "/^cat > .*hello\.c/,/^C\$/p" bench/footprint.sh | sed '1d;$d' > "$work/hello.c"
sed 's,"\(\.\./\)*coll\.h","coll.h",' tests/build/bare_floor.c > "$work/floor.c"

headers() { find coll.h coll_impl.h core transports carriers -name '*.h' 2> "$work/none"; }

switches() {
    [ -f core/base/coll_features.h ] || { echo -; return; }
    sed -n 's/^ \*   \(COLL_NO_[A-Z0-9_]*\)  *.*/\1/p' core/base/coll_feature*.h | sort -u | grep -c .
}

floors() { # of the headers of core that include each other: the longest chain
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

forward() { # a file declares it and does not define it, and another one does
    command -v ctags > "$work/none" || { echo -; return; }
    headers | ctags -x --c-kinds=pf --_xformat='%K %N %F' -L - 2> "$work/none" | awk '
        $1 == "function" { defined[$2] = 1; here[$2, $3] = 1 }
        $1 == "prototype" && $3 ~ /^transports\/(tcp\/|coll_tcp\.h)/ { declared[$2 SUBSEP $3] = 1 }
        END { for (d in declared) { split(d, f, SUBSEP); if (!(d in here) && f[1] in defined) n++ } print n + 0 }'
}

words() {
    [ -f tests/words.sh ] || { echo -; return; }
    if sh tests/words.sh > "$work/words"; then echo green; else sed -n '$s/.*, \([0-9]* failed\)$/\1/p' "$work/words"; fi
}

compile() { # tree: in turns with the others, each round
    sh -c "$cc $flags $links -I. -c '$work/all.c' -o '$work/$1.o'; times" | tail -n 1 \
        | awk '{ sub(/m/, " "); sub(/s/, ""); print $1 * 60 + $2 }' >> "$work/$1.seconds"
}

median() { sort -n "$work/$1.seconds" | sed -n 2p; }

beside() { # tree: its seconds divided by those of 0.2.0
    [ -f "$work/first.seconds" ] || { echo -; return; }
    echo "$(median "$1") $(median first)" | awk '{ printf "%.2f x\n", $1 / $2 }'
}

text() { size "$1" | awk 'NR == 2 { print $1 }'; }

program() { # source compiler flags...: bytes of code and constants
    source=$1 compiler=$2; shift 2
    "$compiler" -std=c11 -w $apart -I. "$source" -o "$work/program" "$@" 2> "$work/none" || { echo -; return; }
    size=${compiler%gcc}size
    [ "$compiler" = "$cc" ] && size=size
    "$size" "$work/program" | awk 'NR == 2 { print $1 }'
}

hosted="-DCOLL_NO_URING -pthread -lm"
m3="-mcpu=cortex-m3 -mthumb"
bare="--specs=picolibc.specs -Os -ffp-contract=off -DCOLL_TINY -DCOLL_ONLY_KINDS=allreduce -DCOLL_ONLY_TYPES=f32"
small="-Os -DCOLL_SMALL -fno-asynchronous-unwind-tables -fno-pie -no-pie"

has() { grep -qs "$1" core/base/coll_features.h; } # that tree has the profile

linked() { # compiler flags...
    command -v "$1" > "$work/none" && has COLL_TINY || { echo -; return; }
    [ "$(program "$work/floor.c" "$@")" = - ] && echo no || echo yes
}

instructions() { # threads | tcp
    flat='' # before a config had parts
    grep -rq '^ *coll_tcp  *tcp;' coll.h core/contract || flat='s/config\.tcp\./config./; s/\.tcp = {\(.*\)} }/\1 }/'
    sed "s|\"../coll.h\"|\"coll.h\"|; $flat" "$here/bench/instructions.c" > "$work/calls.c"
    $cc $flags -I. "$work/calls.c" $links -lm -o "$work/instructions" 2> "$work/none" || { echo -; return; }
    timeout 60 "$work/instructions" "$1" allreduce 8 shortest || echo -
}

measure() { # tree
    echo "lines of headers|$(headers | xargs cat | wc -l)"
    echo "files|$(headers | wc -l)"
    echo "switches, COLL_NO_*|$(switches)"
    echo "floors of core|$(floors)"
    echo "upward includes|$(upward)"
    echo "allowed breaches|$(allowed)"
    echo "forward declarations, TCP|$(forward)"
    echo "README, lines|$(wc -l < README.md)"
    echo "tests/words|$(words)"
    echo "compile, s|$(median "$1")"
    echo "compile, beside 0.2.0|$(beside "$1")"
    echo "text, B|$(text "$work/$1.o")"
    echo "everything, gcc -O2, B|$(program "$work/hello.c" "$cc" -O2 $hosted)"
    echo "small, armhf -Os, B|$(has COLL_SMALL && program "$work/hello.c" arm-linux-gnueabihf-gcc $small $hosted || echo -)"
    echo "tiny, Cortex-M3 -Os, B|$(has COLL_TINY && program "$work/floor.c" arm-none-eabi-gcc $bare $m3 || echo -)"
    echo "tiny links, Cortex-M0|$(linked arm-none-eabi-gcc $bare -mcpu=cortex-m0 -mthumb)"
    echo "tiny links, rv32imc|$(linked riscv64-unknown-elf-gcc $bare -march=rv32imc -mabi=ilp32)"
    echo "instructions, 8 B, threads|$(instructions threads)"
    echo "instructions, 8 B, TCP|$(instructions tcp)"
}

trees=here
if [ $# -gt 0 ]; then
    git worktree add --detach -q "$work/then" "$1" || exit 1
    trees="then here"
fi
git cat-file -e "$first^{commit}" 2> "$work/none" && git worktree add --detach -q "$work/first" "$first" && trees="$trees first"
for _ in 1 2 3; do
    for tree in $trees; do
        cd "$work/$tree" 2> "$work/none" || cd "$here" || exit 1
        compile "$tree"
    done
done
cd "$here" && measure here > "$work/here.txt"
if [ $# -eq 0 ]; then
    awk -F'|' '{ printf "%-28s %10s\n", $1, $2 }' "$work/here.txt"
    exit
fi
cd "$work/then" && measure then > "$work/then.txt"
printf '%-28s %10s %10s\n' '' "$(git rev-parse --short HEAD)" here
paste -d'|' "$work/then.txt" "$work/here.txt" | awk -F'|' '{ printf "%-28s %10s %10s\n", $1, $2, $4 }'
