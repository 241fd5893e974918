#!/bin/sh
# coll.h compiles everywhere it says it does: declarations as C99 to C++23, the implementation as C11, with every warning, on
# gcc and clang, from the parts and from the single file, which has the same text; and it keeps to itself: no symbols but
# coll_..., no state.  It takes a compiler half a minute each time, so code is made of what differs, once for each; the rest is
# only read.
#   CC: one of the compilers (default cc).  Needs gcc, g++, clang, clang++, nm: deps installs them.
cd "$(dirname "$0")/../.." || exit 1
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
says() { # name words command...: it must fail, with these words as its only error
    name=$1 words=$2; shift 2
    if "$@" > "$dir/log" 2>&1; then failed=$((failed + 1)); echo "FAILED - $name: it compiles"
    elif grep -q "$words" "$dir/log" && [ "$(grep -c 'error:' "$dir/log")" -eq 1 ]; then passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); echo "FAILED - $name: $(grep -c 'error:' "$dir/log") errors: $(tail -n 5 "$dir/log")"; fi
}
empty() { # the command prints nothing
    [ -z "$("$@")" ] || { "$@"; return 1; }
}

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
{ printf '#include <stdio.h>\n#include <stdlib.h>\n#include <sys/socket.h>\n'; cat impl.c; } > late.c
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
int main() { return coll_spawn(3, worker, nullptr, nullptr); }
CC
cat > use.cpp <<'CC'
#include "coll.h"
struct item { double x, y, z; };
int use(coll_comm *comm, float *x);
int use(coll_comm *comm, float *x)
{
    const coll_type types[] = { COLL_BLOB(24), COLL_BLOB(sizeof(item)) };
    static_assert(COLL_BLOB(24) == (0x40000000 | 24), "the bytes below a mark");
    coll_call call{};
    call.kind = COLL_ALLREDUCE;
    call.send = COLL_IN_PLACE;
    call.recv = x;
    call.count = 1;
    call.type = COLL_F32;
    call.flags = COLL_DETERMINISTIC | COLL_SATURATE;
    coll_config config{};
    config.log_level = COLL_LOG_WARN;
    const coll_list_item buffers[] = { { COLL_IN_PLACE, x, 1, COLL_F32 } };
    return coll_allreduce(comm, COLL_IN_PLACE, x, 1, COLL_F32, COLL_SUM) || coll_run(comm, &call) || config.rank
        || coll_broadcast(comm, x, 1, types[1], 0) || coll_allreduce_list(comm, buffers, 1, COLL_SUM);
}
CC
sed 's,"\.\./coll\.h","coll.h",' "$top/examples/hello.c" > hello.c
cat > layout.c <<'C'
#include "coll.h"
#define SIZE(type) { #type, sizeof(type) }
const struct { char name[28]; uint32_t bytes; } sizes[] = {
    SIZE(coll_status), SIZE(coll_type), SIZE(coll_op), SIZE(coll_kind), SIZE(coll_log_level), SIZE(coll_sim_fault_kind),
    SIZE(coll_call), SIZE(coll_list_item), SIZE(coll_config), SIZE(coll_tcp), SIZE(coll_sim), SIZE(coll_sim_fault),
    SIZE(coll_allocator), SIZE(coll_xfer), SIZE(coll_failure), SIZE(coll_survivors), SIZE(coll_task), SIZE(coll_transport)
};
C

# ---- the implementation, from the parts
check "implementation for GPUs, gcc -std=c11 -O0" gcc -std=c11 -O0 $WC -DCOLL_WITH_NCCL -I "$top" -c impl.c -o impl.nccl.o
check "implementation for GPUs, as clang reads it, static, poll only" clang -std=c11 -fsyntax-only $WC -DCOLL_WITH_NCCL \
    -DCOLL_NO_URING -I "$top" alone.c
check "declarations for GPUs, g++ -std=c++11" g++ -std=c++11 -fsyntax-only $W -DCOLL_WITH_NCCL -I "$top" use.cc
for c in gcc clang nccl; do
    [ $c = nccl ] || check "implementation, $c -std=c11 -O2" $c -std=c11 -O2 $WC -I "$top" -c impl.c -o impl.$c.o
    check "every symbol begins with coll_, $c" empty \
        sh -c "nm -g --defined-only impl.$c.o | awk '{ print \$3 }' | grep -v '^coll_'"
    check "no writable data but thread-local, $c" empty \
        sh -c "size -A impl.$c.o | awk '\$1 ~ /^\.(data|bss)\$/ && \$2 > 0'"
done
check "no exit, abort, signal or standard output" empty sh -c "nm -u impl.gcc.o | awk '{ print \$2 }' |
    grep -xE '_?exit|_Exit|abort|raise|signal|sigaction|atexit|puts|printf|putchar|stdout'"
check "no constructors" empty sh -c "objdump -h impl.gcc.o | grep -E 'init_array|ctors'"
check "implementation, gcc -std=gnu17 -O0, poll only, one tier" \
    gcc -std=gnu17 -O0 $WC -DCOLL_NO_URING -DCOLL__ONE_TIER -I "$top" -c impl.c -o poll.o
off="-mno-crc32 -mno-sse4.2 -mno-avx2 -mno-f16c -mno-avx512f"        # functions that use them ask for them
if gcc $off -fsyntax-only -x c /dev/null 2> /dev/null; then
    for c in gcc clang; do
        check "implementation, $c $off" $c -std=c11 -O0 $WC $off -DCOLL_NO_URING -I "$top" -S impl.c -o /dev/null
    done
fi
check "static, nothing outside the file" gcc -std=c11 -O0 $WC -DCOLL_NO_URING -I "$top" alone.c -o alone -pthread
# ---- no public layout depends on a switch, and enums have 32 bits
sizes() { # flags...: into sizes.bin
    gcc "$@" -std=c99 -I "$top" -c layout.c -o layout.o && objcopy -O binary -j .rodata layout.o sizes.bin && [ -s sizes.bin ]
}
same_sizes() { sizes "$@" && cmp sizes.bin sizes.whole; }
sizes && mv sizes.bin sizes.whole
for flag in -DCOLL_LEAST -DCOLL_SMALL -DCOLL_TINY -DCOLL_NO_OS -DCOLL_NO_TEXT -DCOLL_NO_ENV -DCOLL_NO_MALLOC -DCOLL_PORTABLE \
    -DCOLL_WITH_NCCL -fshort-enums; do
    check "sizes of public types, $flag" same_sizes $flag
done

printf '#include "coll.h"\nenum { same = 1 / (sizeof(coll_status) == 4 && sizeof(coll_op) == 4 && sizeof(coll_kind) == 4 &&
    sizeof(coll_type) == 4 && sizeof(coll_log_level) == 4 && sizeof(coll_sim_fault_kind) == 4) };\n' > enums.c
for c in "gcc -std=c99" "clang -std=c99" "g++ -std=c++11 -x c++" "clang++ -std=c++11 -x c++"; do
    check "enums of 32 bits, $c -fshort-enums" $c $W -fshort-enums -fsyntax-only -I "$top" enums.c
done

exported() { # compiler flags...: how many functions a shared library shows
    gcc -std=c11 -O0 -DCOLL__ONE_TIER -DCOLL_ONLY_TRANSPORTS=threads -DCOLL_NO_CHOICE -fPIC -shared -I "$top" "$@" impl.c \
        -o hidden.so -pthread && nm -D --defined-only hidden.so | grep -c ' coll_'
}
check "COLL_API hides functions" sh -c '[ "$1" = 0 ]' sh "$(exported '-DCOLL_API=__attribute__((visibility("hidden")))')"
check "COLL_API shows functions" sh -c '[ "$1" -gt 100 ]' sh \
    "$(exported -fvisibility=hidden '-DCOLL_API=__attribute__((visibility("default")))')"
says "COLL_API and COLL_STATIC exclude each other" "define one of the two" gcc -std=c11 -I "$top" -DCOLL_API=extern -c alone.c
check "two units of C and one of C++, linked" sh -c "gcc -std=c11 -I '$top' -c use.c -o use.o &&
    g++ -std=c++11 $W -I '$top' main.cc use.o poll.o -o mixed -pthread && ./mixed"
check "the declarations include no <stdio.h>" empty sh -c "gcc -std=c99 -E -I '$top' use.c | grep -F stdio.h"
check "hello" sh -c "gcc -std=c11 -I '$top' hello.c -o hello -pthread && ./hello | grep -c '6 4' | grep -qx 4"

# ---- bits: no product is fused with a sum, whatever the flags; the arithmetic detects what the preprocessor does not see
if objdump -i | grep -q '^ *i386'; then
    check "nothing is fused, gcc -std=gnu17 -march=haswell" sh -c "gcc -std=gnu17 -O1 -fexpensive-optimizations -march=haswell \
        -DCOLL_NO_URING -DCOLL__ONE_TIER -I '$top' -c impl.c -o fused.o && ! objdump -d fused.o | grep -E 'vfn?m(add|sub)'"
fi
cat > bits.c <<'C'
#define _DEFAULT_SOURCE 1
#define COLL_STATIC 1
#include "coll.h"
#include "core/base/coll_base.h"
#include "core/numbers/coll_types.h"
#include "core/numbers/coll_arithmetic.h"
int main(void)
{
    char text[200];
    coll__arithmetic_text(coll__arithmetic(), text, sizeof text);
    return puts(text) < 0;
}
C
for c in gcc clang; do
    while read -r words flags; do
        check "$c ${flags:-without flags}: $words" sh -c "$c -w -O2 $flags -I '$top' bits.c -o bits && ./bits | grep '$words'"
    done << 'FLAGS'
IEEE
IEEE -fno-trapping-math -fno-math-errno
NaN -ffinite-math-only
regroups -fassociative-math -fno-signed-zeros -fno-trapping-math
inverses -freciprocal-math
zero -fno-signed-zeros
flushes -ffast-math
FLAGS
done
check "gcc -fsingle-precision-constant: 32 bits" sh -c \
    "gcc -w -fsingle-precision-constant -I '$top' bits.c -o bits && ./bits | grep '32 bits'"
if grep -qw fma /proc/cpuinfo; then
    check "clang -ffp-contract=fast: fuses" sh -c \
        "clang -w -O2 -ffp-contract=fast -mfma -I '$top' bits.c -o bits && ./bits | grep fuses"
fi

# ---- the single file equals the parts, line for line after the preprocessor: the rest is tested with it alone, without code
text_of() { # folder file compiler flags...
    from=$1 file=$2; shift 2
    "$@" -E -P -dD -I "$from" "$file" | grep -v '^ *$'
}
same() { # file compiler flags...
    text_of "$top" "$@" > parts.i && text_of "$top/single" "$@" > single.i && [ -s parts.i ] && cmp parts.i single.i
}
for c in gcc clang; do
    for define in -DCOLL_IMPLEMENTATION -DCOLL_NO_URING -DCOLL_STATIC -DCOLL_WITH_OPENSSL -DCOLL_WITH_NCCL; do
        check "the single file is the parts, $c $define" same impl.c $c -std=c11 $define
    done
    check "the declarations of the single file are those of the parts, $c" same use.c $c -std=c99
done
from=$top/single what="single file"
for c in gcc clang; do
    for std in c99 c11 c17 c2x; do
        check "$what: declarations, $c -std=$std" $c -std=$std $WC -I "$from" -c use.c -o use.o
    done
    cxx=g++; [ $c = gcc ] || cxx=clang++
    for std in c++11 c++14 c++17 c++20 c++2b; do
        check "$what: declarations, $cxx -std=$std" $cxx -std=$std $W -I "$from" -c use.cc -o usecc.o
    done
    casts="-Wold-style-cast -Wzero-as-null-pointer-constant -Wsign-conversion -Wcast-qual"
    [ $c = clang ] || casts="$casts -Wuseless-cast"
    for std in c++11 c++14 c++17 c++20 c++2b; do
        check "$what: what C++ programs use, $cxx -std=$std" $cxx -std=$std -fsyntax-only $W $casts -I "$from" use.cpp
    done
    read="$c -fsyntax-only $WC -I $from"
    check "$what: the implementation as $c reads it, poll only" $read -std=gnu11 -DCOLL_NO_URING impl.c
    check "$what: the same for any machine" $read -std=c11 -DCOLL__ONE_TIER impl.c
    for std in c17 c2x; do check "$what: the same as $std" $read -std=$std -DCOLL__ONE_TIER impl.c; done
done
for mpi in openmpi mpich; do                  # -isystem: no warnings for mpi.h
    at=-isystem$(mpicc.$mpi -show 2> /dev/null | tr ' ' '\n' | sed -n 's/^-I//p' | head -n 1)
    for c in gcc clang; do
        check "$what: with $mpi, implementation, $c" $c -std=c11 -fsyntax-only $WC -DCOLL_WITH_MPI -DCOLL__ONE_TIER \
            -DCOLL_NO_URING "$at" -I "$from" impl.c
    done
    check "$what: with $mpi, declarations, C99" gcc -std=c99 -fsyntax-only $WC -DCOLL_WITH_MPI "$at" -I "$from" use.c
    check "$what: with $mpi, declarations, C++11" g++ -std=c++11 -fsyntax-only $W -DCOLL_WITH_MPI "$at" -I "$from" use.cc
done
check "$what: implementation after system headers, gnu11" gcc -std=gnu11 -fsyntax-only $W -I "$from" late.c
says "$what: the same with -std=c11 says what to do" "before any system header" \
    gcc -std=c11 -fsyntax-only -I "$from" late.c
check "$what: declared first, implemented later in one file" gcc -std=gnu11 -fsyntax-only $W -I "$from" twice.c
says "$what: in C++ says what to do" "one .c file" g++ -DCOLL_IMPLEMENTATION -I "$from" -c main.cc -o bad.o
for c in gcc clang; do
    for std in c99 gnu99; do
        says "$what: $c -std=$std says what to do" "this file with -std=c11" $c -std=$std -I "$from" -fsyntax-only impl.c
    done
    for flags in -ffast-math -Ofast -ffinite-math-only; do
        says "$what: $c $flags is refused, in one line" "without -ffast-math" $c -std=c11 -w $flags -I "$from" \
            -c impl.c -o bad.o
    done
    check "$what: $c for another system is the portable half, without a warning" $c -std=c11 -U__linux__ $WC -I "$from" \
        -fsyntax-only impl.c
done
says "$what: the x87 is refused, gcc" "msse2 -mfpmath=sse" gcc -mfpmath=387 -std=c11 -I "$from" -c impl.c -o bad.o
says "$what: both units are refused, gcc" "msse2 -mfpmath=sse" gcc -mfpmath=sse+387 -std=c11 -I "$from" -c impl.c -o bad.o
says "$what: an i686 without SSE2, clang" "msse2 -mfpmath=sse" clang -m32 -march=pentium3 -std=c11 -I "$from" \
    -fsyntax-only impl.c
for flags in -funsafe-math-optimizations -freciprocal-math -fno-signed-zeros; do
    says "$what: gcc $flags is refused" "without -ffast-math" gcc -std=c11 $flags -I "$from" -c impl.c -o bad.o
done

check "the sizes of the house" sh "$top/tests/style.sh"

# ---- the complete programs of the README: read as they stand, and run with the implementation that is there already
awk '/^```c$/ { n++; on = 1; next } /^```/ { on = 0 } on { print > ("readme" n ".c") }' "$top/README.md"
for f in readme*.c; do
    grep -q 'int main' "$f" || continue
    check "README: $f" gcc -std=c11 $W -fsyntax-only -I "$top" "$f"
    sed '/define COLL_IMPLEMENTATION/d' "$f" > "part.$f"
    check "README: $f runs" sh -c "gcc -std=gnu11 -I '$top' part.$f impl.gcc.o -o readme -pthread &&
        ./readme | grep -c 'of 4' | grep -qx 4"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
