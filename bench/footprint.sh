#!/bin/sh
# Bytes of the library in a program that calls one allreduce of f32, by what was left out (core/base/coll_features.h), and on a
# board in one that calls all of COLL_TINY (tests/build/bare_size.c).
#   usage: footprint.sh [table]     bytes of text, data and bss, seconds and MB of memory of the compiler: each profile for each
#                                   target and level it is meant for
#          footprint.sh switches    what each switch alone saves of everything, in bytes of text and seconds of gcc -Os
#          footprint.sh check       text against bench/footprint.txt; fails where it is more than 2 % larger
#          footprint.sh update      writes the rows of this machine's compilers in that file, and keeps the others
#          footprint.sh document    writes the tables of docs/size.md again: those two, and what `make memory` prints; 10 minutes
#
# `small`, `least` and `tiny` are for small sizes, and are compiled accordingly: the first two without tables for
# unwinding (-fno-asynchronous-unwind-tables) and at a fixed address (-fno-pie -no-pie); a board has neither.
#
# Linked with -ffunction-sections and --gc-sections; io_uring is always left out, because not every machine has its library.  A
# target without a compiler is skipped.
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
    return coll_spawn(4, worker, NULL, NULL);
}
C

fixed="-fno-asynchronous-unwind-tables -fno-pie -no-pie"

flags_of() { # profile
    case $1 in
    everything) ;;
    threads) echo "-DCOLL_ONLY_TRANSPORTS=threads" ;;
    tcp) echo "-DCOLL_ONLY_TRANSPORTS=tcp" ;;
    small) echo "-DCOLL_SMALL $fixed" ;;
    least) echo "-DCOLL_LEAST $fixed" ;;
    tiny) echo "-DCOLL_TINY" ;;
    -D*) echo "$1" ;;
    esac
}

few() { # profile, compiler, level: what is checked
    echo "everything gcc -Os"
    echo "everything gcc -O2"
    echo "everything clang -Os"
    echo "small gcc -Os"
    echo "least gcc -Os"
    echo "least clang -Os"
    echo "small arm-linux-gnueabihf-gcc -Os"
    echo "tiny arm-none-eabi-gcc -Os"
}

all() {
    for level in -Os -O2; do
        for profile in everything threads tcp small least; do
            echo "$profile gcc $level"
            echo "$profile clang $level"
        done
    done
    echo "everything gcc -O0"
    echo "everything clang -O0"
    echo "small arm-linux-gnueabihf-gcc -Os"
    echo "tiny arm-none-eabi-gcc -Os"
}

built() { # compiler, source, flags...: "seconds MB text data bss"
    python3 - "$dir/hello" "$@" <<'PY' || return 1
import resource, subprocess, sys
program, compiler, source, flags = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
prefix = compiler[:-3] if compiler.endswith('-gcc') else ''
if subprocess.call([compiler, '-std=c11', '-ffunction-sections', '-fdata-sections', '-Wl,--gc-sections', '-I', '.', source,
                    '-o', program] + flags): sys.exit(1)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
sizes = subprocess.run([prefix + 'size', program], capture_output=True, text=True).stdout.split('\n')[1].split()
print('%.1f %d %s %s %s' % (usage.ru_utime, usage.ru_maxrss // 1024, *sizes[:3]))
PY
}

measured() { # profile, compiler, level
    case $2 in
    arm-none-eabi-gcc) built "$2" tests/build/bare_size.c "$3" $(flags_of "$1") -Wno-type-limits -ffp-contract=off \
        -mcpu=cortex-m3 -mthumb --specs=picolibc.specs ;;
    *) built "$2" "$dir/hello.c" "$3" $(flags_of "$1") -DCOLL_NO_URING -pthread -lm ;;
    esac || { echo "footprint: $* does not compile" >&2; return 1; }
}

# Each row: profile, compiler and its version, level, bytes of text.
texts() {
    few | while read -r profile compiler level; do
        command -v "$compiler" > /dev/null || continue
        figures=$(measured "$profile" "$compiler" "$level") || return 1
        set -- $figures
        echo "$profile $compiler-$($compiler -dumpversion) $(uname -m) $level $3"
    done
}

mode=${1:-table}
case $mode in
table)
    echo "| profile | compiler | text | data | bss | compiled in, s | with, MB |"
    echo "|---|---|---:|---:|---:|---:|---:|"
    all | while read -r profile compiler level; do
        command -v "$compiler" > /dev/null || continue
        figures=$(measured "$profile" "$compiler" "$level") || exit 1
        set -- $figures
        echo "| $profile | $compiler $level | $3 | $4 | $5 | $1 | $2 |"
    done ;;
switches)
    set -- $(measured everything gcc -Os)
    whole_seconds=$1 whole_text=$3
    echo "everything: $whole_text bytes, $whole_seconds s"
    echo
    echo "| switch | saves, bytes | saves, s |"
    echo "|---|---:|---:|"
    sed -n 's/^ \*   \(COLL_NO_[A-Z]*\)  *.*/\1/p' core/base/coll_features.h | grep -vE '_(URING|MALLOC)$' |
    while read -r switch; do
        set -- $(measured "-D$switch" gcc -Os)
        awk -v name="$switch" -v text="$3" -v seconds="$1" -v whole="$whole_text" -v of="$whole_seconds" \
            'BEGIN { printf "| %s | %d | %.1f |\n", name, whole - text, of - seconds }'
    done ;;
update)
    texts > "$dir/texts" || exit 1
    awk '{ key = $1 $2 $3 $4 }
        NR == FNR { row[key] = $0; order[++rows] = key; next }
        key in row { $0 = row[key]; delete row[key] }
        { print }
        END { for (i = 1; i <= rows; i++) if (order[i] in row) print row[order[i]] }' "$dir/texts" "$kept" > "$dir/kept" \
        && cp "$dir/kept" "$kept" && cat "$kept" ;;
check)
    texts > "$dir/texts" || exit 1
    awk 'NR == FNR { was[$1 $2 $3 $4] = $5; next }
        { key = $1 $2 $3 $4; name = $1 " by " $2 " " $4 }
        !(key in was) { print "skipped - " name " on " $3 " is not in bench/footprint.txt"; next }
        $5 > was[key] * 1.02 { print "FAILED - " name ": " $5 " bytes of text, and there were " was[key]; failed++; next }
        { print "ok - " name ": " $5 " bytes of text"; passed++ }
        END {
            if (passed + failed == 0 && ENVIRON["CI"] != "") { print "FAILED - no compiler of this machine is there"; failed++ }
            print passed + 0 " passed, " failed + 0 " failed"
            exit failed > 0
        }' "$kept" "$dir/texts" ;;
document)
    page=docs/size.md
    today=$(date +%Y-%m-%d)
    for part in table switches memory; do
        {
            echo "Measured $today, $(uname -m), gcc $(gcc -dumpversion), clang $(clang -dumpversion 2> /dev/null)."
            echo
            if [ $part = memory ]; then make --no-print-directory -s memory; else sh bench/footprint.sh $part; fi
        } > "$dir/$part" || exit 1
    done
    awk -v dir="$dir" '
        /^<!-- end -->$/ { inside = 0 }
        !inside { print }
        /^<!-- written by bench\/footprint.sh: [a-z]+ -->$/ {
            inside = 1
            while ((getline line < (dir "/" $5)) > 0) print line
        }' "$page" > "$dir/page" && cp "$dir/page" "$page" ;;
*)
    echo "footprint: $mode is none of table, switches, check, update, document"
    exit 2 ;;
esac
