#!/bin/sh
# The arithmetic on a machine that this one is not: test_convert and test_numbers, built for aarch64, under qemu.
cd "$(dirname "$0")/.." || exit 1
passed=0 failed=0 cc=aarch64-linux-gnu-gcc out=build/emulated
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64)
warn="-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Wstrict-prototypes -Werror"

if ! command -v $cc > /dev/null 2>&1 || [ -z "$qemu" ]; then
    echo "needs gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static (Debian's names)"
    echo "0 passed, 1 failed"
    exit 1
fi
mkdir -p $out
emulate() { # test argument...: its log ends with the status
    test=$1; shift
    $cc $warn -O1 -static -DCOLL_NO_URING "tests/$test.c" -o "$out/$test" -pthread -lm > "$out/$test.log" 2>&1 &&
        "$qemu" "$out/$test" "$@" >> "$out/$test.log" 2>&1
    echo "status $?" >> "$out/$test.log"
}

emulate test_convert 8009 &                      # fewer floats than elsewhere, for qemu is slow
emulate test_numbers
wait
for test in test_convert test_numbers; do
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed' $out/$test.log | tail -n 1)
    status=$(sed -n '$s/^status //p' $out/$test.log)
    echo "$test on aarch64: ${line:-no result, status $status}"
    if [ -z "$line" ]; then failed=$((failed + 1)); tail -n 5 $out/$test.log; continue; fi
    p=${line%% *} rest=${line#*, } f=${rest%% *}
    [ "$status" -eq 0 ] || [ "$f" -ne 0 ] || f=1
    [ "$f" -eq 0 ] || grep failed: $out/$test.log
    passed=$((passed + p)) failed=$((failed + f))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
