#!/bin/sh
# Instructions of a repeated call, per rank.
#   shortest   of a call that finds all it needs and waits for nothing; the same in every run that nothing disturbs
#   all        as valgrind counts them, with waiting: those of many calls less those of a few, so that opening and closing do not
#              count.  On a busy machine threads take turns otherwise, and look once more before they sleep: up to a third more
#   usage: instructions.sh PROGRAM [most]      most: fail where the shortest is beyond its limit in the list below, and leave out
#                                              valgrind.  x86-64
# The limits are for gcc 12, and gcc 14 is below them, too.  Code of gcc 13 may take 1 % more.
program=$1 strict=$2
more=0
case $(${CC:-cc} --version | head -n 1) in *' 13.'*) more=1 ;; esac

count() { # calls: instructions of the whole process
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --fair-sched=yes "$program" "$1" "$2" "$3" "$4" 2>&1 \
        | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

passed=0 failed=0
printf '%-10s %-10s %8s %10s %8s %8s\n' over call bytes shortest limit all
while read -r over call bytes limit; do
    limit=$((limit * (100 + more) / 100)) all=-
    if [ ! "$strict" ] && command -v valgrind > /dev/null; then
        few=$(count "$over" "$call" "$bytes" 1000)
        many=$(count "$over" "$call" "$bytes" 3000)
        all=$(((${many:-0} - ${few:-0}) / 4000))
    fi
    for try in 1 2 3; do                          # on a busy machine one may not have found its shortest
        shortest=$("$program" "$over" "$call" "$bytes" shortest)
        [ "${shortest:-0}" -gt "$limit" ] || break
    done
    printf '%-10s %-10s %8d %10d %8d %8s\n' "$over" "$call" "$bytes" "${shortest:-0}" "$limit" "$all"
    if [ "${shortest:-0}" -gt 0 ] && [ "$shortest" -le "$limit" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done <<LIST
threads allreduce 8 335
threads allreduce 1024 505
threads broadcast 8 230
threads reduce 8 225
threads reduce_scatter 4 370
threads allgather 4 330
threads alltoall 4 345
threads barrier 0 205
tcp allreduce 8 2160
tcp allreduce 1024 2380
tcp broadcast 8 1750
tcp barrier 0 2015
memory allreduce 8 2380
memory allreduce 1024 2760
memory broadcast 8 1875
memory barrier 0 2250
domain allreduce 8 340
domain allreduce 1024 505
domain broadcast 8 230
domain barrier 0 205
LIST
if [ "$strict" ]; then
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
fi
