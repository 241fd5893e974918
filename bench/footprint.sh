#!/bin/sh
# What the library weighs in a program that calls one allreduce of f32, by what was left out of it (core/base/coll_parts.h).
#   usage: footprint.sh [table [PROFILE...]]   bytes of text, data and bss, seconds and MB of memory of the compiler, for gcc and
#                                              clang, -Os and -O2; with names, of these profiles alone
#          footprint.sh check                  text of gcc -Os against bench/footprint.txt; fails where it is more than 2 % larger
#          footprint.sh update                 writes that file
#
# Linked with -ffunction-sections and --gc-sections; io_uring, whose library is not on every machine, is left out of all.
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
kept=bench/footprint.txt

cat > "$dir/hello.c" <<'C'
#define COLL_IMPLEMENTATION
#include "coll.h"
static int worker(coll_comm *comm, void *arg)
{
    float x = 1;
    (void)arg;
    return coll_allreduce(comm, &x, &x, 1, COLL_F32, COLL_SUM) || x != (float)coll_size(comm);
}
int main(void)
{
    return coll_spawn(4, worker, NULL);
}
C

profiles() { # name and flags
    echo "everything"
    echo "small          -DCOLL_SMALL"
    echo "threads,tcp    -DCOLL_ONLY_TRANSPORTS=threads,tcp"
    echo "threads        -DCOLL_ONLY_TRANSPORTS=threads"
    echo "tcp            -DCOLL_ONLY_TRANSPORTS=tcp"
    echo "least          -DCOLL_SMALL -DCOLL_NO_TCP -DCOLL_NO_RECORDER -DCOLL_NO_BACKGROUND -DCOLL_NO_HIERARCHY"
    sed -n 's/^ \*   \(COLL_NO_[A-Z]*\)  .*/\1/p' core/base/coll_parts.h | grep -v COLL_NO_URING | while read -r switch; do
        printf '%-14s -D%s\n' "$switch" "$switch"
    done
}

built() { # compiler, level, flags...: "seconds MB", "text data bss"
    python3 - "$@" -std=c11 -ffunction-sections -fdata-sections -Wl,--gc-sections -DCOLL_NO_URING -I . "$dir/hello.c" \
        -o "$dir/hello" -pthread -lm <<'PY' || return 1
import resource, subprocess, sys, time
began = time.time()
status = subprocess.call(sys.argv[1:])
if status: sys.exit(1)
print('%.1f %d' % (time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024))
PY
    size "$dir/hello" | awk 'NR == 2 { print $1, $2, $3 }'
}

measured() { # compiler, level, flags...: "text data bss seconds MB"
    figures=$(built "$@") || { echo "footprint: $* does not compile" >&2; return 1; }
    echo "$figures" | awk 'NR == 1 { seconds = $1; memory = $2 } NR == 2 { print $1, $2, $3, seconds, memory }'
}

texts() { # of gcc -Os, as the kept file has them
    echo "# bytes of text of gcc -Os: bench/footprint.sh update ($(uname -m), gcc $(gcc -dumpfullversion))"
    profiles > "$dir/profiles"
    while read -r name flags; do
        figures=$(measured gcc -Os $flags) || return 1
        echo "$name ${figures%% *}"
    done < "$dir/profiles"
}

mode=${1:-table}
[ $# -eq 0 ] || shift
case $mode in
table)
    echo "| profile | compiler | text | data | bss | compiled in, s | with, MB |"
    echo "|---|---|---:|---:|---:|---:|---:|"
    profiles > "$dir/profiles"
    while read -r name flags; do
        [ $# -eq 0 ] || case " $* " in *" $name "*) ;; *) continue ;; esac
        for compiler in gcc clang; do
            for level in -Os -O2; do
                figures=$(measured $compiler $level $flags) || exit 1
                echo "$figures" | awk -v name="$name" -v how="$compiler $level" \
                    '{ printf "| %s | %s | %d | %d | %d | %s | %d |\n", name, how, $1, $2, $3, $4, $5 }'
            done
        done
    done < "$dir/profiles" ;;
update)
    texts > "$dir/texts" && cp "$dir/texts" "$kept" && cat "$kept" ;;
check)
    [ -e "$kept" ] || { echo "footprint: there is no $kept: bench/footprint.sh update writes it"; exit 1; }
    case $(head -n 1 "$kept") in *"($(uname -m), gcc $(gcc -dumpfullversion))"*) ;; *)
        echo "footprint: $kept is of another compiler or machine: $(head -n 1 "$kept")"
        exit 77 ;;
    esac
    texts > "$dir/texts" || exit 1
    awk 'FNR == 1 { next }
        NR == FNR { was[$1] = $2; next }
        !($1 in was) { print "footprint: " $1 " is not in bench/footprint.txt"; failed++; next }
        $2 > was[$1] * 1.02 { print "footprint: " $1 " has " $2 " bytes of text, and had " was[$1]; failed++; next }
        { passed++ }
        END { print passed + 0 " passed, " failed + 0 " failed"; exit failed > 0 }' "$kept" "$dir/texts" ;;
*)
    echo "footprint: $mode is none of table, check, update"
    exit 2 ;;
esac
