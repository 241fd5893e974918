#!/bin/sh
# Instructions of a repeated call, per rank, as valgrind counts them: those of many calls less those of a few, so that opening
# and closing do not count.  On a busy machine threads take turns otherwise, and look once more before they sleep: up to a third
# more, which the limits below allow.
#   usage: instructions.sh PROGRAM [most]      most: fail where a count is beyond its limit in the list below
program=$1 strict=$2
command -v valgrind > /dev/null || { echo "instructions: valgrind is not installed"; exit 1; }

count() { # calls: instructions of the whole process
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --fair-sched=yes "$program" "$1" "$2" "$3" "$4" 2>&1 \
        | sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

passed=0 failed=0
printf '%-10s %-10s %8s %14s %8s\n' over call bytes instructions limit
while read -r over call bytes limit; do
    few=$(count "$over" "$call" "$bytes" 1000)
    many=$(count "$over" "$call" "$bytes" 3000)
    each=$(((${many:-0} - ${few:-0}) / 4000))
    printf '%-10s %-10s %8d %14d %8d\n' "$over" "$call" "$bytes" "$each" "$limit"
    if [ -n "$few" ] && [ -n "$many" ] && [ "$each" -le "$limit" ]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
done <<LIST
threads allreduce 8 2110
threads allreduce 1024 4080
threads broadcast 8 1970
threads barrier 0 2020
tcp allreduce 8 2690
tcp allreduce 1024 3150
tcp broadcast 8 2280
tcp barrier 0 2610
memory allreduce 8 3240
memory allreduce 1024 3930
LIST
if [ "$strict" ]; then
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
fi
