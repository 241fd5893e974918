#!/bin/sh
# run.sh - boards without an operating system train together, emulated by qemu: each board a process, each two joined by a serial
# line.  The same training by as many threads of this machine must end with the same bits.
#
#   usage: sh examples/bare/run.sh [BOARDS [NOISE [SOURCE]]]     BOARDS: 1 to 4 (2).  NOISE: of 65536 bytes on the lines so many
#                                                                are lost or changed (0).  SOURCE: another program than train.c
#
# Needs gcc-arm-none-eabi, picolibc-arm-none-eabi and qemu-system-arm (Debian's names).  OUT=folder keeps what is built.
# REUSE=yes runs it again, whatever SOURCE is.
boards=${1:-2} noise=${2:-0} source=$3
here=$(cd "$(dirname "$0")" && pwd) || exit 1
[ -n "$source" ] || source=$here/train.c
case $boards in [1-4]) ;; *) echo "run.sh: 1 to 4 boards, not $boards"; exit 2 ;; esac
case $noise in '' | *[!0-9]*) echo "run.sh: the noise is a number, not $noise"; exit 2 ;; esac
for need in arm-none-eabi-gcc qemu-system-arm; do
    command -v $need > /dev/null 2>&1 && continue
    echo "run.sh: needs $need (Debian: gcc-arm-none-eabi picolibc-arm-none-eabi qemu-system-arm)"
    exit 1
done
dir=$(mktemp -d) || exit 1
pids=
# shellcheck disable=SC2086
trap '[ -z "$pids" ] || kill $pids 2> /dev/null; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
out=${OUT:-$dir}
mkdir -p "$out" || exit 1

# ---- the program, for the board and for this machine; the first 256 digits are compiled in
awk 'BEGIN { print "static const unsigned char digits[][65] = {" } NR <= 256 { print "    { " $0 " }," } END { print "};" }' \
    "$here/../data/digits.csv" > "$out/digits.h"
[ "$REUSE" ] && [ -e "$out/board.elf" ] || sh "$here/build.sh" "$source" "$out/board.elf" "-I$out" || exit 1
[ "$REUSE" ] && [ -e "$out/threads" ] || ${CC:-cc} -std=c11 "-I$out" "$source" -o "$out/threads" -pthread || exit 1

# ---- lines: two pipes each, with an end for either board.  Board r has line i at UART i + 1; to itself it has none
a=0
while [ $a -lt "$boards" ]; do
    b=$((a + 1))
    while [ $b -lt "$boards" ]; do
        mkfifo "$dir/$a-$b.in" "$dir/$a-$b.out" || exit 1
        ln -s "$dir/$a-$b.in" "$dir/$b-$a.out"
        ln -s "$dir/$a-$b.out" "$dir/$b-$a.in"
        b=$((b + 1))
    done
    a=$((a + 1))
done

# ---- all boards at the same time; each ends by itself
rank=0
while [ $rank -lt "$boards" ]; do
    set -- -serial null
    peer=0
    while [ $peer -lt "$boards" ]; do
        [ $peer -eq $rank ] || set -- "$@" -serial "pipe:$dir/$rank-$peer"
        peer=$((peer + 1))
    done
    timeout "${LIMIT:-300}" qemu-system-arm -M mps2-an385 -display none -monitor none "$@" -kernel "$out/board.elf" \
        -semihosting-config "enable=on,target=native,arg=board,arg=$rank,arg=$boards,arg=$noise" \
        < /dev/null > "$dir/of.board.$rank" 2>&1 &
    pids="$pids $!"
    rank=$((rank + 1))
done
bad=0
for pid in $pids; do wait "$pid" || bad=$((bad + 1)); done
pids=
cat "$dir"/of.board.*
"$out/threads" "$boards" > "$dir/of.threads" || bad=$((bad + 1))

# ---- the bits: of each board, and of each thread
cat "$dir"/of.board.* "$dir/of.threads" | sed -n 's/^rank [0-9]* of [0-9]*: //p' > "$dir/bits"
if [ $bad -eq 0 ] && [ "$(wc -l < "$dir/bits")" -eq $((2 * boards)) ] && [ "$(sort -u "$dir/bits" | wc -l)" -eq 1 ]; then
    echo "$boards boards and $boards threads: the same bits"
    exit 0
fi
cat "$dir/of.threads"
echo "$boards boards and $boards threads: NOT the same bits, or no result ($bad ended badly)"
exit 1
