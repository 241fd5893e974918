#!/bin/sh
# test_bare.sh - boards without an operating system (examples/bare), emulated: two and four of them, over lines that are good and
# over lines that lose and change bytes, have the bits of threads of this machine, in a training and in every call of COLL_TINY.
# Where nothing comes through, each says so and ends.  And what it takes of memory.
#
#   usage: sh tests/test_bare.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
# Where there is noise, what is sent again meets messages of later calls, which wait in memory: how many is left to chance.
most_text=41984 most_stack=2560 most_comm=1024 most_memory=24576 most_memory_in_noise=28672
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok - $1"; }
wrong() { failed=$((failed + 1)); echo "FAILED - $1: $2" | tr '\n' '|'; echo; }

same() { # name, boards, noise, source
    if OUT="$dir/$1" sh examples/bare/run.sh "$2" "$3" "$4" > "$dir/log" 2>&1; then
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

for boards in 2 4; do
    for noise in 0 200; do
        same calls $boards $noise tests/bare_calls.c
        same train $boards $noise examples/bare/train.c
    done
done

# ---- a line on which nothing comes through
OUT="$dir/dead" sh examples/bare/run.sh 2 65536 > "$dir/log" 2>&1
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

# ---- what a program is
if sh examples/bare/build.sh tests/bare_size.c "$dir/size.elf" > "$dir/log" 2>&1; then
    text=$(arm-none-eabi-size "$dir/size.elf" | awk 'NR == 2 { print $1 }')
    if [ "$text" -le $most_text ]; then ok "$text bytes of program, of at most $most_text"
    else wrong "the program" "$text bytes, and at most $most_text are wanted"; fi
else wrong "the program" "$(head -n 3 "$dir/log")"; fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
