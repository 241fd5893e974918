#!/bin/sh
# Machines that this one is not, under qemu, and another C library.
#   aarch64                  the arithmetic: test_convert and test_numbers
#   mipsel, s390x, i686      every call, between threads and over TCP: 32 bits without atomic access to 64; the other byte order;
#                            32 bits with SSE.  And with musl, on this machine
#   mixed                    one job of processes for four machines, which must get the same bits
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 out=build/emulated
warn="-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes -Werror"
musl="musl-gcc -idirafter /usr/include -idirafter /usr/include/$(uname -m)-linux-gnu"
for need in aarch64-linux-gnu-gcc mipsel-linux-gnu-gcc s390x-linux-gnu-gcc i686-linux-gnu-gcc musl-gcc \
    qemu-aarch64-static qemu-mipsel-static qemu-s390x-static qemu-i386-static; do
    command -v $need > /dev/null 2>&1 && continue
    echo "needs $need (Debian: gcc-{aarch64,mipsel,s390x,i686}-linux-gnu, libc6-dev-{arm64,mipsel,s390x,i386}-cross," \
         "musl-tools, qemu-user-static)"
    echo "0 passed, 1 failed"
    exit 1
done
mkdir -p $out

compiler() { # machine: how to compile for it
    case $1 in
        aarch64) echo aarch64-linux-gnu-gcc ;;
        mipsel) echo mipsel-linux-gnu-gcc ;;
        s390x) echo s390x-linux-gnu-gcc -fexcess-precision=fast ;;
        i386) echo i686-linux-gnu-gcc -msse2 -mfpmath=sse ;;
        musl) echo "$musl" ;;
        *) echo "${CC:-cc}" ;;
    esac
}
libraries() { case $1 in mipsel) echo -pthread -lm -latomic ;; *) echo -pthread -lm ;; esac; }
under() { case $1 in musl | native) ;; *) echo "qemu-$1-static" ;; esac; }

emulate() { # name machine flags-and-sources -- argument...: its log ends with the status
    name=$1 machine=$2 sources=$3; shift 4
    $(compiler "$machine") $warn -static -DCOLL_NO_URING $sources -o "$out/$name" $(libraries "$machine") 2>&1 |
        grep -v 'statically linked applications\|: in function' > "$out/$name.log"
    $(under "$machine") "$out/$name" "$@" >> "$out/$name.log" 2>&1
    echo "status $?" >> "$out/$name.log"
}
count() { # name: what the log says
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$out/$1.log" | tail -n 1)
    status=$(sed -n '$s/^status //p' "$out/$1.log")
    echo "$1: ${line:-no result, status $status}"
    if [ -z "$line" ]; then failed=$((failed + 1)); tail -n 5 "$out/$1.log"; return; fi
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    [ "$status" -eq 0 ] || [ "$f" -ne 0 ] || f=1
    [ "$f" -eq 0 ] || grep failed: "$out/$1.log"
    passed=$((passed + p)) failed=$((failed + f))
}

contract="-O0 -DCOLL__ONE_TIER coll.c tests/test_contract.c"
emulate convert aarch64 "-O1 tests/test_convert.c" -- 8009 &     # fewer floats than elsewhere, for qemu is slow
emulate numbers aarch64 "-O1 tests/test_numbers.c" --
emulate contract.mipsel mipsel "$contract" -- threads,tcp-poll 1
emulate contract.s390x s390x "$contract" -- threads,tcp-poll 1
emulate contract.i386 i386 "$contract" -- threads,tcp-poll 1
emulate contract.musl musl "$contract" -- threads,tcp-poll 2
wait
for name in convert numbers contract.mipsel contract.s390x contract.i386 contract.musl; do count $name; done

# ---- one job; with -std=gnu17 some of these machines would fuse products with sums
for machine in native i386 aarch64 mipsel; do
    $(compiler $machine) -std=gnu17 -O1 -fexpensive-optimizations -w -DCOLL__ONE_TIER -DCOLL_NO_URING -static tests/mixed.c \
        -o "$out/mixed.$machine" $(libraries $machine) 2> /dev/null
done
rank=0
for machine in native i386 aarch64 mipsel; do
    COLL_RANK=$rank COLL_SIZE=4 COLL_ADDR="file:$(pwd)/$out/mixed.address" $(under $machine) "$out/mixed.$machine" \
        > "$out/mixed.$machine.log" 2>&1 &
    rank=$((rank + 1))
done
wait
bits=$(cat $out/mixed.*.log | grep '^bits ')
if [ "$(echo "$bits" | wc -l)" -eq 4 ] && [ "$(echo "$bits" | sort -u | wc -l)" -eq 1 ]; then
    passed=$((passed + 1))
else
    failed=$((failed + 1))
    echo "failed: the ranks of one job for several machines do not agree"
    tail -n 2 $out/mixed.*.log
fi
rm -f $out/mixed.address
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
