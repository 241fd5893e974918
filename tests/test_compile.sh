#!/bin/sh
# coll.h compiles everywhere it says it does: declarations as C99 to C++17, the implementation as C11, with every warning, on
# gcc and clang, from the parts and from the single file; and it keeps to itself: no symbols but coll_..., no state.
#   CC: one of the compilers (default cc).  Needs gcc, g++, clang, clang++, nm: deps installs them.
cd "$(dirname "$0")/.." || exit 1
top=$(pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
W="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror"
WC="$W -Wstrict-prototypes -Wmissing-prototypes"

check() { # name command...: it must succeed
    name=$1; shift
    if "$@" > "$dir/log" 2>&1; then passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); echo "FAILED - $name: $(tail -n 5 "$dir/log")"; fi
}
says() { # name words command...: it must fail, and say so
    name=$1 words=$2; shift 2
    if "$@" > "$dir/log" 2>&1; then failed=$((failed + 1)); echo "FAILED - $name: it compiles"
    elif grep -q "$words" "$dir/log"; then passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); echo "FAILED - $name: $(tail -n 5 "$dir/log")"; fi
}
empty() { # the command prints nothing
    [ -z "$("$@")" ] || { "$@"; return 1; }
}

uring=-DCOLL_NO_URING
printf '#include <liburing.h>\nint main(void) { return 0; }\n' | ${CC:-cc} -x c - -luring -o /dev/null 2> /dev/null && uring=-luring
make --no-print-directory dist > /dev/null || exit 1

# ---- what is compiled
cd "$dir" || exit 1
cat > use.c <<'C'
#include "coll.h"
#include "coll.h"
#include <string.h>
int use(coll_comm *comm, float *x);
int use(coll_comm *comm, float *x)
{
    coll_call call;
    coll_config config;
    memset(&call, 0, sizeof call);
    memset(&config, 0, sizeof config);
    call.kind = COLL_BARRIER;
    config.log_level = COLL_LOG_WARN;
    (void)config;
    return coll_allreduce(comm, x, x, 1, COLL_F32, COLL_SUM) || coll_run(comm, &call);
}
C
sed 's/^int use(coll_comm \*comm, float \*x);$//' use.c > use.cc
printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > impl.c
printf '#include <stdio.h>\n#include <stdlib.h>\n#include <sys/socket.h>\n#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > late.c
printf '#include "coll.h"\n#include <stdio.h>\n#define COLL_IMPLEMENTATION\n#include "coll.h"\n' > twice.c
printf '#define COLL_STATIC\n#define COLL_IMPLEMENTATION\n#include "coll.h"\nint main(void) { return 0; }\n' > alone.c
cat > main.cc <<'CC'
#include <cstdio>
#include "coll.h"
static int worker(coll_comm *comm, void *)
{
    float x = 1;
    if (coll_allreduce(comm, &x, &x, 1, COLL_F32, COLL_SUM) != COLL_OK) return 1;
    return x == 3 ? 0 : 2;
}
extern "C" int use(coll_comm *comm, float *x);
int main() { return coll_spawn(3, worker, nullptr); }
CC
sed 's,"\.\./coll\.h","coll.h",' "$top/examples/hello.c" > hello.c

# ---- from the parts, and from the single file
for from in "$top" "$top/dist"; do
    what=parts; [ "$from" = "$top" ] || what="single file"
    for c in gcc clang; do
        for std in c99 c11; do check "$what: declarations, $c -std=$std" $c -std=$std $WC -I "$from" -c use.c -o use.o; done
        cxx=g++; [ $c = gcc ] || cxx=clang++
        for std in c++11 c++17; do check "$what: declarations, $cxx -std=$std" $cxx -std=$std $W -I "$from" -c use.cc -o usecc.o; done
        check "$what: implementation, $c -std=c11 -O2" $c -std=c11 -O2 $WC -I "$from" -c impl.c -o impl.$c.o
    done
    check "$what: implementation, gcc -std=gnu17 -O0, poll only" gcc -std=gnu17 -O0 $WC -DCOLL_NO_URING -I "$from" -c impl.c -o poll.o
    check "$what: implementation, clang -std=gnu11, poll only" clang -std=gnu11 -fsyntax-only \
        $WC -DCOLL_NO_URING -I "$from" impl.c
    check "$what: implementation for GPUs, gcc -std=c11 -O0" gcc -std=c11 -O0 $WC -DCOLL_WITH_NCCL -I "$from" -c impl.c -o impl.nccl.o
    check "$what: implementation for GPUs, clang -std=c11, poll only, static" clang -std=c11 -fsyntax-only \
        $WC -DCOLL_WITH_NCCL -DCOLL_NO_URING -I "$from" alone.c
    check "$what: declarations for GPUs, g++ -std=c++11" g++ -std=c++11 -fsyntax-only $W -DCOLL_WITH_NCCL -I "$from" use.cc
    check "$what: implementation after system headers, gnu11" gcc -std=gnu11 -fsyntax-only $W -I "$from" late.c
    says "$what: the same with -std=c11 says what to do" "before any system header" gcc -std=c11 -fsyntax-only -I "$from" late.c
    check "$what: declared first, implemented later in one file" gcc -std=gnu11 -fsyntax-only $W -I "$from" twice.c
    check "$what: static, nothing outside the file" gcc -std=c11 -O0 $WC -DCOLL_NO_URING -I "$from" alone.c -o alone -pthread
    says "$what: in C++ says what to do" "one .c file" g++ -DCOLL_IMPLEMENTATION -I "$from" -c main.cc -o bad.o
    check "$what: two units of C and one of C++, linked" sh -c "gcc -std=c11 -I '$from' -c use.c -o use.o &&
        g++ -std=c++11 $W -I '$from' main.cc use.o poll.o -o mixed -pthread && ./mixed"
    check "$what: hello" sh -c "gcc -std=c11 -I '$from' hello.c -o hello -pthread $uring && ./hello | sort | grep -c '6 4' | grep -qx 4"
    check "$what: hello without liburing" sh -c "gcc -std=c11 -I '$from' hello.c -o hello -pthread -DCOLL_NO_URING && ./hello | grep -c '6 4' | grep -qx 4"
    for c in gcc clang nccl; do
        check "$what: every symbol begins with coll_, $c" empty sh -c "nm -g --defined-only impl.$c.o | awk '{ print \$3 }' | grep -v '^coll_'"
        check "$what: no writable data but thread-local, $c" empty sh -c "size -A impl.$c.o | awk '\$1 ~ /^\.(data|bss)\$/ && \$2 > 0'"
    done
    check "$what: no exit, abort, signal or standard output" empty \
        sh -c "nm -u impl.gcc.o | awk '{ print \$2 }' | grep -xE '_?exit|_Exit|abort|raise|signal|sigaction|atexit|puts|printf|putchar|stdout'"
done
check "no constructors" empty sh -c "objdump -h impl.gcc.o | grep -E 'init_array|ctors'"

# ---- the complete programs of the README
awk '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print > ("readme" n ".c") }' "$top/README.md"
for f in readme*.c; do
    grep -q 'int main' "$f" || continue
    check "README: $f" sh -c "gcc -std=c11 $W -I '$top' $f -o readme -pthread $uring && ./readme | grep -c 'of 4' | grep -qx 4"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
