#!/bin/sh
# Machines that this one is not, under qemu, and another C library.
#   usage: [COLL_TEST_SEED=...] sh tests/build/emulated.sh [all]
#   contract     every call, between threads and over TCP: 32 bits without atomic access to 64 (mipsel) and with (i686 with SSE,
#                armhf), 64 bits (aarch64, riscv64, mips64el), the other byte order (s390x), musl.  The seed draws one machine
#                besides mipsel and s390x; `all`: each machine
#   arithmetic   aarch64 also has kernels of its own: test_convert and test_numbers
#   mixed        one job of processes for seven machines of one byte order, which must get the same bits; and jobs of both byte
#                orders, in which every rank must get an error
# A table of the machines comes at the end.
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0 out=build/emulated
warn="-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes -Werror"
musl="musl-gcc -idirafter /usr/include -idirafter /usr/include/$(uname -m)-linux-gnu"
for need in aarch64-linux-gnu-gcc arm-linux-gnueabihf-gcc riscv64-linux-gnu-gcc mips64el-linux-gnuabi64-gcc mipsel-linux-gnu-gcc \
    s390x-linux-gnu-gcc i686-linux-gnu-gcc musl-gcc qemu-aarch64-static qemu-arm-static qemu-riscv64-static qemu-mips64el-static \
    qemu-mipsel-static qemu-s390x-static qemu-i386-static; do
    command -v $need > /dev/null 2>&1 && continue
    echo "needs $need (Debian: gcc-{aarch64,mipsel,s390x,i686,riscv64}-linux-gnu, gcc-arm-linux-gnueabihf," \
         "gcc-mips64el-linux-gnuabi64, libc6-dev-{arm64,armhf,mipsel,mips64el,s390x,i386,riscv64}-cross, musl-tools," \
         "qemu-user-static)"
    echo "0 passed, 1 failed"
    exit 1
done
rm -rf $out
mkdir -p $out
machines="native i386 aarch64 armhf riscv64 mipsel mips64el s390x musl"
if [ "$*" != all ]; then
    seed=${COLL_TEST_SEED:-$(date +%s)}
    echo "COLL_TEST_SEED=$seed draws the same machine"
    machines="mipsel s390x $(echo native i386 aarch64 armhf riscv64 mips64el musl | tr ' ' '\n' \
        | awk -v seed="$seed" 'BEGIN { srand(seed % 2147483647) } { print rand(), $0 }' | sort | awk 'NR <= 1 { print $2 }')"
fi

compiler() { # machine: how to compile for it
    case $1 in
        aarch64) echo aarch64-linux-gnu-gcc ;;
        armhf) echo arm-linux-gnueabihf-gcc -mfpu=neon-vfpv4 ;;
        riscv64) echo riscv64-linux-gnu-gcc ;;
        mipsel) echo mipsel-linux-gnu-gcc ;;
        mips64el) echo mips64el-linux-gnuabi64-gcc ;;
        s390x) echo s390x-linux-gnu-gcc -fexcess-precision=fast ;;
        i386) echo i686-linux-gnu-gcc -msse2 -mfpmath=sse ;;
        musl) echo "$musl" ;;
        *) echo "${CC:-cc}" ;;
    esac
}
libraries() { case $1 in mipsel) echo -pthread -lm -latomic ;; *) echo -pthread -lm ;; esac; }
under() { case $1 in musl | native) ;; armhf) echo qemu-arm-static ;; *) echo "qemu-$1-static" ;; esac; }

emulate() { # name machine flags-and-sources -- argument...: its log ends with the status
    name=$1 machine=$2 sources=$3; shift 4
    $(compiler "$machine") $warn -static -DCOLL_NO_URING $sources -o "$out/$name" $(libraries "$machine") 2>&1 |
        grep -v 'statically linked applications\|: in function' > "$out/$name.log"
    $(under "$machine") "$out/$name" "$@" >> "$out/$name.log" 2>&1
    echo "status $?" >> "$out/$name.log"
}
count() { # name machine: what the log says
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$out/$1.log" | tail -n 1)
    status=$(sed -n '$s/^status //p' "$out/$1.log")
    echo "$1: ${line:-no result, status $status}"
    if [ -z "$line" ]; then failed=$((failed + 1)); tail -n 5 "$out/$1.log"; return; fi
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    [ "$status" -eq 0 ] || [ "$f" -ne 0 ] || f=1
    [ "$f" -eq 0 ] || grep failed: "$out/$1.log"
    passed=$((passed + p)) failed=$((failed + f))
    echo "$2 $p" >> "$out/sums"
}

contract="-O0 -DCOLL__ONE_TIER coll.c tests/collectives/test_contract.c"
emulate convert aarch64 "-O1 tests/unit/test_convert.c" -- 8009 &     # fewer floats than elsewhere, for qemu is slow
emulate numbers aarch64 "-O1 tests/unit/test_numbers.c" --
traps() { [ "$1" != i386 ] || echo -fsanitize=undefined -fno-sanitize=alignment -fsanitize-undefined-trap-on-error; }
for machine in $machines; do emulate contract.$machine $machine "$(traps $machine) $contract" -- threads,tcp-poll 2; done
wait
for name in convert numbers; do count $name aarch64; done
for machine in $machines; do count contract.$machine $machine; done

# ---- one job; with -std=gnu17 some of these machines would fuse products with sums
little="native i386 aarch64 armhf riscv64 mipsel mips64el"
for machine in $little s390x; do
    $(compiler $machine) -std=gnu17 -O1 -fexpensive-optimizations -w -DCOLL__ONE_TIER -DCOLL_NO_URING -static \
        tests/build/mixed.c -DCOLL_ONLY_TRANSPORTS=tcp -o "$out/mixed.$machine" $(libraries $machine) 2> /dev/null
done

job() { # machine...: a rank on each; its log ends with the status
    rank=0 size=$#
    rm -f $out/mixed.address $out/rank.*
    for machine in "$@"; do
        ( COLL_RANK=$rank COLL_SIZE=$size COLL_ADDR="file:$(pwd)/$out/mixed.address" $(under $machine) "$out/mixed.$machine" \
            > "$out/rank.$rank" 2>&1; echo "status $?" >> "$out/rank.$rank" ) &
        rank=$((rank + 1))
    done
    wait
    rm -f $out/mixed.address
}
conclusion() { # status name: of the last job
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); echo "ok - $2"; return; fi
    failed=$((failed + 1))
    echo "failed: $2"
    tail -n 3 $out/rank.*
}
agreed() { # how many: so many ranks, and one result
    grep -h '^bits ' $out/rank.* > $out/bits
    [ "$(wc -l < $out/bits)" -eq "$1" ] && [ "$(sort -u $out/bits | wc -l)" -eq 1 ]
}

# Rank 1 has the other byte order.  Its error says so; rank 0's error also names the missing rank; so does that of rank 2.
refused() {
    ! grep -q '^bits\|^status 0' $out/rank.* && [ "$(ls $out/rank.* | wc -l)" -eq 3 ] || return 1
    grep -q "turned away.*its byte order is not $1-endian, and here it is" $out/rank.0 || return 1
    grep -q "^rank 1 could not reach rank 0 .*its byte order is not $1-endian, and here it is" $out/rank.1 || return 1
    grep -q "^rank 0 waited .*; these ranks have not come: 1$" $out/rank.0 || return 1
    grep -q "^rank 2: rank 0 waited .*; these ranks have not come: 1$" $out/rank.2
}

job $little
agreed 7; conclusion $? "one job of seven machines gets the same bits: $little"
job s390x s390x
agreed 2; conclusion $? "two of the other byte order"
COLL_START_TIMEOUT_MS=15000                      # how long rank 0 waits for missing ranks; the others must connect before
export COLL_START_TIMEOUT_MS
job native s390x aarch64
refused little; conclusion $? "different byte orders in one job: an error on every rank, rank 0 is little-endian"
job s390x armhf s390x
refused big; conclusion $? "different byte orders in one job: an error on every rank, rank 0 is big-endian"

# ---- what has been proved, by machine
echo
printf '%-12s %-6s %-8s %-7s %s\n' machine bits order libc "tests passed"
for machine in $machines; do
    said=$(echo '#include <stdlib.h>' | $(compiler $machine) -E -dM -x c - 2> /dev/null)
    order=little bits=64 libc=musl
    case $said in *'__BYTE_ORDER__ __ORDER_BIG_ENDIAN__'*) order=big ;; esac
    case $said in *'__SIZEOF_POINTER__ 4'*) bits=32 ;; esac
    case $said in *'define __GLIBC__ '*) libc=glibc ;; esac
    name=$machine
    case $machine in native | musl) name=$(uname -m) ;; esac
    sum=$(awk -v machine=$machine '$1 == machine { sum += $2 } END { print sum + 0 }' $out/sums)
    printf '%-12s %-6s %-8s %-7s %d\n' $name $bits $order $libc "$sum"
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
