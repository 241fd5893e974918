#!/bin/sh
# test_bare.sh - boards without an operating system (examples/bare), emulated: two and four of them, over lines that are good and
# over lines that lose and change bytes, have the bits of threads of this machine, in a training and in every call of COLL_TINY.
# Where nothing comes through, each says so and ends.  What it takes of memory.  That it links for processors without atomic
# instructions, and that two tasks of one program do not disturb each other.
#
#   usage: sh tests/build/test_bare.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
# With noise, repeated pieces overlap with messages of later calls, which wait in memory: their number is random.
most_text=37376 most_floor=20000 most_stack=2560 most_comm=1024 most_memory=24576 most_memory_in_noise=28672
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok - $1"; }
wrong() { failed=$((failed + 1)); echo "FAILED - $1: $2" | tr '\n' '|'; echo; }

same() { # name, boards, noise, source
    if OUT="$dir/$1" REUSE=yes sh examples/bare/run.sh "$2" "$3" "$4" > "$dir/log" 2>&1; then
        ok "$1, $2 boards, noise $3"
        sed -n 's/^rank 0 used: /    /p' "$dir/log"
    else
        wrong "$1, $2 boards, noise $3" "$(tail -n 12 "$dir/log")"
        return
    fi
    used=$(sed -n 's/^rank [0-9]* used: stack \([0-9]*\),.*/\1/p' "$dir/log" | sort -n | tail -n 1)
    if [ "${used:-999999}" -le $most_stack ]; then ok "$1, $2 boards: $used bytes of stack"
    else wrong "$1, $2 boards: stack" "${used:-none} bytes, and at most $most_stack are wanted"; fi
    used=$(sed -n 's/^rank [0-9]* used: .*, with all buffers \([0-9]*\),.*/\1/p' "$dir/log" | sort -n | tail -n 1)
    most=$most_memory
    [ "$3" -eq 0 ] || most=$most_memory_in_noise
    if [ "${used:-999999}" -le $most ]; then ok "$1, $2 boards: $used bytes of memory"
    else wrong "$1, $2 boards: memory" "${used:-none} bytes, and at most $most are wanted"; fi
    comm=$(sed -n 's/^rank [0-9]* used: .* communicator \([0-9]*\),.*/\1/p' "$dir/log" | sort -n | tail -n 1)
    if [ "${comm:-999999}" -le $most_comm ]; then ok "$1, $2 boards: $comm bytes of the heap before the first call"
    else wrong "$1, $2 boards: communicator" "${comm:-none} bytes, and at most $most_comm are wanted"; fi
    broken=$(sed -n 's/.* \([0-9]*\) frames broken$/\1/p' "$dir/log" | sort -n | head -n 1)
    if [ "$3" -eq 0 ]; then return; fi
    if [ "${broken:-0}" -gt 0 ]; then ok "$1, $2 boards: each got at least $broken broken frames"
    else wrong "$1, $2 boards" "the noise is not there"; fi
}

same calls 2 0 tests/build/bare_calls.c
same calls 4 200 tests/build/bare_calls.c
same train 2 200 examples/bare/train.c

# ---- a line on which nothing comes through
OUT="$dir/train" REUSE=yes sh examples/bare/run.sh 2 65536 > "$dir/log" 2>&1
lines=$(grep -c '^rank [01] of 2: .*is alive but late' "$dir/log")
if [ "$lines" -eq 2 ]; then ok "dead lines: both boards say that the other is late"
else wrong "dead lines" "$(tail -n 6 "$dir/log")"; fi

# ---- an arena that is too short for the calls is an error, and malloc is not even there
if sh examples/bare/build.sh examples/bare/train.c "$dir/short.elf" "-I$dir/train" -DBARE_MEMORY=2048 > "$dir/log" 2>&1 \
    && ! timeout 60 qemu-system-arm -M mps2-an385 -display none -monitor none -serial null -kernel "$dir/short.elf" \
        -semihosting-config enable=on,target=native,arg=board,arg=0,arg=1,arg=0 < /dev/null > "$dir/log" 2>&1 \
    && grep -q 'out of memory' "$dir/log"; then ok "2 KiB of memory: $(head -n 1 "$dir/log")"
else wrong "2 KiB of memory" "$(head -n 3 "$dir/log")"; fi
if arm-none-eabi-nm "$dir/short.elf" | grep -qE ' (malloc|calloc|realloc|posix_memalign|_?sbrk|free)$'
then wrong "malloc" "it is in the program"; else ok "no malloc in the program"; fi

# ---- size of a program
if sh examples/bare/build.sh tests/build/bare_size.c "$dir/size.elf" > "$dir/log" 2>&1; then
    text=$(arm-none-eabi-size "$dir/size.elf" | awk 'NR == 2 { print $1 }')
    if [ "$text" -le $most_text ]; then ok "$text bytes of program, of at most $most_text"
    else wrong "the program" "$text bytes, and at most $most_text are wanted"; fi
else wrong "the program" "$(head -n 3 "$dir/log")"; fi

# ---- only one allreduce of one type: functions that are not called are not linked
floor() { # type, flag: into $dir/floor.elf
    arm-none-eabi-gcc --specs=picolibc.specs -mcpu=cortex-m3 -mthumb -std=c11 -Os -Wall -Wextra -Wno-type-limits \
        -ffp-contract=off -ffunction-sections -fdata-sections -Wl,--gc-sections -DCOLL_TINY -DCOLL_ONLY_KINDS=allreduce \
        "-DCOLL_ONLY_TYPES=$1" "$2" tests/build/bare_floor.c -o "$dir/floor.elf" > "$dir/log" 2>&1
}
for type in f32 i32; do
    [ $type = f32 ] && flag=-UFLOOR_I32 || flag=-DFLOOR_I32
    if ! floor $type $flag; then
        wrong "an allreduce of $type" "$(head -n 3 "$dir/log")"
        continue
    fi
    text=$(arm-none-eabi-size "$dir/floor.elf" | awk 'NR == 2 { print $1 }')
    if [ "$text" -le $most_floor ]; then ok "$text bytes of program for an allreduce of $type, of at most $most_floor"
    else wrong "an allreduce of $type" "$text bytes, and at most $most_floor are wanted"; fi
done
floats=$(arm-none-eabi-nm "$dir/floor.elf" | grep -E ' __aeabi_(c?[df][a-z]|u?[il]l?2[df])')
if [ ! "$floats" ]; then ok "no arithmetic of floats in that of i32"; else wrong "floats in an allreduce of i32" "$floats"; fi

# ---- every function links where there are no atomic instructions, and without malloc
links() { # name, compiler, flags...
    name=$1 compiler=$2; shift 2
    if ! "$compiler" --specs=picolibc.specs -std=c11 -Os -Wall -Wextra -Wno-type-limits -ffp-contract=off -DCOLL_TINY \
        -DCOLL_NO_MALLOC "$@" tests/build/bare_size.c -o "$dir/links.elf" > "$dir/log" 2>&1; then
        wrong "$name" "$(grep -m 3 -E 'undefined|error|warning' "$dir/log")"
    elif "${compiler%gcc}nm" "$dir/links.elf" | grep -qE ' (malloc|calloc|realloc|aligned_alloc|posix_memalign|free)$'; then
        wrong "$name" "malloc is in the program"
    else ok "$name: all functions link, without malloc"; fi
}
links "Cortex-M0" arm-none-eabi-gcc -mcpu=cortex-m0 -mthumb
links "RISC-V without atomic instructions" riscv64-unknown-elf-gcc -march=rv32imc -mabi=ilp32

# ---- tasks of an RTOS, by threads of this machine
if ${CC:-cc} -std=c11 -O1 -Wno-type-limits -DCOLL_TINY -DCOLL_NO_MALLOC tests/build/bare_tasks.c -o "$dir/tasks" -pthread \
    > "$dir/log" 2>&1 && timeout 60 "$dir/tasks" > "$dir/log" 2>&1
then ok "tasks: $(tail -n 1 "$dir/log")"; else wrong "tasks" "$(tail -n 12 "$dir/log")"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
