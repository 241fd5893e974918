#!/bin/sh
# test_single.sh - single/coll.h equals the generated file byte for byte, and coll.h and the newest heading of CHANGELOG.md are of
# one version; and a copy with one fault of each kind is rejected.  No file that ships has 65,000 lines: some debuggers
# stop at 65,535.  pair/coll.h and pair/coll.c, as `make dist` writes them, are the same library: with gcc and clang, for C and
# C++, with each profile.
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
top=$(pwd)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok - $1"; }
wrong() { failed=$((failed + 1)); echo "FAILED - $1: $2"; }

agrees() { # folder: says what is wrong there
    for part in "" header source; do
        awk -v part=$part -f tools/amalgamate.awk "$1/coll.h" > "$work/made$part" || return 1
    done
    if ! cmp -s "$work/made" "$1/single/coll.h"; then
        echo "single/coll.h is not what the parts make: run make dist, and commit single/coll.h with what was changed"
        return 1
    fi
    wc -l "$1/single/coll.h" "$work/madeheader" "$work/madesource" "$1/coll.hpp" | awk '
        $1 >= 65000 && $2 != "total" { print $2 " has " $1 " lines, and must have fewer than 65000"; long = 1 }
        END { exit long }'
}

if agrees . > "$work/said" 2>&1; then ok "single/coll.h is what the parts make"
else wrong "single/coll.h" "$(cat "$work/said")"; fi

copy() { # folder: what `make dist` reads
    mkdir -p "$1/tests" "$1/bench"
    cp -r coll.h coll.hpp coll_impl.h CHANGELOG.md Makefile core transports carriers tools "$1"
    cp tests/tests.mk "$1/tests" && cp bench/bench.mk "$1/bench"
}

# The copy is right before each fault is planted.
planted() { # name, command that plants a fault into the copy, [what is said of it]
    rm -rf "$work/copy" && mkdir -p "$work/copy/single"
    copy "$work/copy"
    awk -f tools/amalgamate.awk "$work/copy/coll.h" > "$work/copy/single/coll.h"
    if agrees "$work/copy" > "$work/said" 2>&1 && (cd "$work/copy" && eval "$2") && ! agrees "$work/copy" > "$work/said" 2>&1 \
        && grep -q "${3-.}" "$work/said"; then ok "found: $1"
    else wrong "not found: $1" "$(cat "$work/said")"; fi
}
change() { sed "$1" "$2" > changed && ! cmp -s changed "$2" && mv changed "$2"; }
if [ $failed -eq 0 ]; then
    planted "one byte of the single file" "change '\$s/endif/endiF/' single/coll.h"
    planted "one byte of a part" "echo >> core/algorithms/coll_tree.h"
    planted "a version of coll.h" "change 's/^\\(#define COLL_VERSION_PATCH\\) .*/\\1 99/' coll.h"
    planted "a version of CHANGELOG.md" "change 's/^## 0\\./## 9./' CHANGELOG.md"
    planted "a date of CHANGELOG.md" "change 's/^## \\(0[0-9.]*\\),.*/## \\1, some day/' CHANGELOG.md"
    planted "a version of the single file" "change 's/^\\(#define COLL_VERSION_PATCH\\) .*/\\1 99/' single/coll.h"
    planted "65,000 lines" "yes '' | head -n 65000 >> core/algorithms/coll_tree.h; make -s dist > said 2>&1" "lines, and must"
fi

# ---- the pair.  What is compiled is as in build/plain.
pair=$work/pair
mkdir -p "$work/dist" "$pair"
copy "$work/dist"
make --no-print-directory -s -C "$work/dist" dist > "$work/said" 2>&1 || wrong "make dist" "$(cat "$work/said")"
cp "$work/dist/pair/coll.h" "$work/dist/pair/coll.c" coll.hpp "$pair" || exit 1
cat > "$pair/hello.c" <<'C'
#include "coll.h"
static int worker(coll_comm *comm, void *arg)
{
    float x = 1;
    (void)arg;
    return coll_allreduce(comm, &x, &x, 1, COLL_F32, COLL_SUM) || x != 3;
}
int main(void) { return coll_spawn(3, worker, 0, 0) != 0; }
C
cat > "$pair/hello.cpp" <<'C'
#include "coll.hpp"
int main()
{
    bool same[3] = {};
    coll::spawn(3, [&](coll::communicator &comm) { same[comm.rank()] = comm.allreduce(1.0f) == 3; });
    return !(same[0] && same[1] && same[2]);
}
C
{
    printf '#define _GNU_SOURCE 1\n#include <stdlib.h>\n#include <string.h>\n'
    sed '/^#define COLL_IMPLEMENTATION$/d
        s,"\.\./\.\./coll\.h","coll.h",
        s,"\.\./support/check\.h","check.h",' tests/build/bare_tasks.c
} > "$pair/tasks.c"
cp tests/support/check.h "$pair"
cd "$pair" || exit 1
strict="-std=c11 -O0 -DCOLL__ONE_TIER -Wall -Wextra -Wpedantic -Wundef -Werror -Wno-type-limits"

links() { # name, program, compiler, switches...: compile coll.c and the program with them, link both, run it
    name=$1 program=$2 cc=$3; shift 3
    if $cc $strict "$@" -c coll.c > said 2>&1 && $cc $strict "$@" "$program" coll.o -o program -pthread -lm > said 2>&1 \
        && timeout 60 ./program > said 2>&1; then ok "the pair: $name"
    else wrong "the pair: $name" "$(tail -n 5 said)"; fi
}
refuses() { # name, file, switches...: it must not compile, and the only error names coll.c
    name=$1 file=$2; shift 2
    if ${CC:-cc} $strict "$@" -fsyntax-only "$file" > said 2>&1; then wrong "the pair: $name" "it compiles"
    elif [ "$(grep -c 'error:' said)" -eq 1 ] && grep -q 'error: .*coll\.c' said; then ok "the pair: $name is an error"
    else wrong "the pair: $name" "$(tail -n 5 said)"; fi
}

for cc in gcc clang; do
    command -v $cc > /dev/null || continue
    links "$cc, COLL_LEAST" hello.c $cc -DCOLL_LEAST
    links "$cc, COLL_TINY" tasks.c $cc -DCOLL_TINY -DCOLL_NO_MALLOC
    links "$cc" hello.c $cc
    [ $cc = gcc ] && cxx=g++ || cxx=clang++
    command -v $cxx > /dev/null || continue
    if $cxx -std=c++17 -Wall -Wextra -Werror hello.cpp coll.o -o program -pthread > said 2>&1 && timeout 60 ./program > said 2>&1
    then ok "the pair: $cxx"; else wrong "the pair: $cxx" "$(tail -n 5 said)"; fi
done
links "COLL_SMALL" hello.c "${CC:-cc}" -DCOLL_SMALL
echo '#define COLL_SMALL' > mine.h
links "COLL_CONFIG_FILE" hello.c "${CC:-cc}" '-DCOLL_CONFIG_FILE="mine.h"'
refuses "COLL_IMPLEMENTATION" hello.c -DCOLL_IMPLEMENTATION
refuses "COLL_STATIC" coll.c -DCOLL_STATIC
cp "$top/coll.c" coll.c
refuses "coll.c of the single file" coll.c

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
