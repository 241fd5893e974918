#!/bin/sh
# test_run_elastic.sh - coll-run --elastic: processes that are killed, at any moment, are started again and join, at most so
# often; too few end the job; a process that SIGTERM ends leaves; hosts come and go, by a script in the place of ssh, and by
# launchers that meet at an address; nothing is left behind.
#
# usage: [CC=cc] [CFLAGS=...] [COLL_TEST_SEED=...] sh tests/programs/test_run_elastic.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2046,SC2086,SC2154

. "$(dirname "$0")/run_jobs.sh"
. "$top/tests/support/folder.sh"
rank=$top/$(folder release)/run_elastic
env -u CFLAGS make -C "$top" --no-print-directory config=release "$(folder release)/run_elastic" > build.log 2>&1 \
    || { cat build.log; exit 1; }
export COLL_START_TIMEOUT_MS=40000
seed=${COLL_TEST_SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}
echo "seed $seed"

# ---- >>helpers ----

pid_of() { # OUTPUT SLOT: the last process of this slot
    sed -n "s/^\[ *$2[] ].*pid \([0-9]*\)\$/\1/p" "$1" | tail -n 1
}
pids_of() { sed -n 's/^.*pid \([0-9]*\)$/\1/p' "$1"; }
another() { [ "$(pid_of "$1" "$2")" != "$victim" ]; }
grown() { [ "$(said "$1" "step [0-9]+: $2 ranks\$")" -gt "$before" ]; }
restart() { # NAME SLOT RANKS OUTPUT: kill the process of this slot, until another one has joined, and there are so many again
    before=$(said "$1.out" "step [0-9]+: $3 ranks\$")
    victim=$(pid_of "$4" "$2")
    kill -9 "$victim"
    until_true another "$4" "$2"
    for time in 1 2 3 4 5; do until_true grown "$1.out" "$3" && break; done
    check "$1: the process of slot $2 is killed, and another one joins" yes "$(grown "$1.out" "$3" && echo yes || cat "$1.out")"
}
has_ranks() { # OUTPUT RANKS: now
    [ "$(sed -n 's/.*step [0-9]*: \([0-9]*\) ranks$/\1/p' "$1" | tail -n 1)" = "$2" ]
}
until_ranks() { # NAME OUTPUT RANKS
    for time in 1 2 3 4 5; do until_true has_ranks "$2" "$3" && break; done
    check "$1" "$3" "$(sed -n 's/.*step [0-9]*: \([0-9]*\) ranks$/\1/p' "$2" | tail -n 1)"
}
said() { # OUTPUT PATTERN: how often
    grep -cE "$2" "$1"
}

# ---- >>usage ----

for bad in '--elastic 3:2 -n 3 true' '--elastic 2:5 -n 4 true' '--elastic x -n 2 true' '--elastic 2 -n 2 true' \
    '--elastic 0:2 -n 2 true' '--elastic 1:2x -n 2 true' '--elastic :2 -n 2 true' '--elastic 1: -n 2 true' \
    '--restart 1 -n 2 true' \
    '--elastic 1:2 --restart x -n 2 true' '--elastic 1:2 --restart -1 -n 2 true' '--elastic 1:2 --threads 2 -n 2 true' \
    '--elastic 1:2 --check -n 2' '--elastic 1:5 -H a:2,b:2 true' '--join a:1 -n 3 --elastic 1:2 true' \
    '--join a:1 -n 1 --size 3 --elastic 1:2 true' '--join a:1 -n 1 --size 1 --elastic 2:3 true'; do
    "$run" $bad > bad.out 2> bad.err
    check "bad usage: '$bad'" '2 0 1' "$? $(($(wc -c < bad.out))) $(grep -c '^coll-run: ' bad.err)"
done
"$run" --elastic 3:2 -n 3 true 2> bad.err
check 'MIN is more than MAX: a sentence' 1 "$(said bad.err 'MIN 3 is more than MAX 2')"
"$run" --elastic 2:5 -n 4 true 2> bad.err
check 'MAX is more than the slots: a sentence' 1 "$(said bad.err 'MAX is more than the 4 slots')"
check '--dry-run: those that begin' '2 2' "$("$run" -n 4 --elastic 1:2 --dry-run p > dry.out
    echo "$(said dry.out '^rank ') $(said dry.out 'COLL_SIZE=2 ')")"

# ---- >>deaths at any moment ----

for share in on off; do
    COLL_SHARE=$share "$run" -t 100 -n 4 --elastic 2:4 --restart 100 "$rank" kills "$seed" 10 4 > kills.out 2>&1
    check "COLL_SHARE=$share: ten deaths" 0 $?
    check "COLL_SHARE=$share: right sums" 0 "$(said kills.out WRONG)"
    check "COLL_SHARE=$share: all end at the same step" '4 1' "$(said kills.out 'of 4 ends at step [0-9]+, kill 10$') $(
        sed -n 's/.*ends at step \([0-9]*\),.*/\1/p' kills.out | sort -u | grep -c .)"
    check "COLL_SHARE=$share: each is started again" "$(said kills.out 'was killed by SIGKILL .* the others go on$')" \
        "$(said kills.out '^coll-run: rank [0-3] is started again')"
    [ $failed -eq 0 ] || { cat kills.out; break; }
done

# ---- >>restarts, and too few ----

"$run" -t 60 -n 3 --elastic 1:3 --restart 2 "$rank" until count.go > count.out 2> count.err &
job=$!
until_ranks 'restarts: all are there' count.out 3
for time in 1 2; do
    restart count 2 3 count.out
done
kill -9 "$(pid_of count.out 2)"
until_ranks 'restarts: none is left' count.out 2
: > count.go
wait $job
check 'restarts: exit status' 0 $?
check 'restarts: so many' 'rank 2 is started again (restart 1 of 2) rank 2 is started again (restart 2 of 2)' \
    "$(sed -n 's/^coll-run: \(.*again.*\)/\1/p' count.err | tr '\n' ' ' | sed 's/ $//')"
check 'restarts: the last ones' 2 "$(said count.out 'of 2 ends at')"

"$run" -t 60 -n 3 --elastic 3:3 --restart 0 "$rank" until never.go > few.out 2> few.err &
job=$!
until_ranks 'too few: all are there' few.out 3
kill -9 "$(pid_of few.out 1)"
wait $job
check 'too few: exit status, that of the last one' 137 $?
check 'too few: a sentence' 1 \
    "$(said few.err '^coll-run: 2 processes are left, and --elastic 3:3 needs 3 \(0 of 0 restarts were used\)$')"
check 'too few: the others have ended' gone "$(gone_in_time $(pids_of few.out))"

"$run" -t 60 -n 3 --elastic 1:3 "$rank" until never.go > lost.out 2> lost.err &
job=$!
until_ranks 'no quorum: all are there' lost.out 3
kill -9 "$(pid_of lost.out 0)" "$(pid_of lost.out 1)"
wait $job
check 'no quorum: exit status' 1 $?
check 'no quorum: a sentence' 1 "$(said lost.err '^coll-run: no process of the job is left$')"
check 'no quorum: nothing is left' gone "$(gone_in_time $(pids_of lost.out))"

"$run" -t 60 -n 2 --elastic 1:2 --restart 3 sh -c 'exit 7' 2> crash.err
check 'a program that always fails: exit status' 7 $?

# ---- >>leaving ----

"$run" -t 60 -n 3 --elastic 2:3 "$rank" until leave.go > leave.out 2> leave.err &
job=$!
until_ranks 'SIGTERM: all are there' leave.out 3
kill "$(pid_of leave.out 0)"
until_ranks 'SIGTERM: the others go on' leave.out 2
: > leave.go
wait $job
check 'SIGTERM: exit status' 0 $?
check 'SIGTERM: it has left, and is not started again' '1 0' \
    "$(said leave.err 'rank 0 .* was killed by SIGTERM .*; it has left the job$') $(said leave.err again)"

"$run" -t 60 -n 2 --elastic 2:2 "$rank" until never.go > below.out 2> below.err &
job=$!
until_ranks 'SIGTERM, below MIN: all are there' below.out 2
kill "$(pid_of below.out 1)"
wait $job
check 'SIGTERM, below MIN: exit status, a sentence' '143 1' "$? $(said below.err '1 process is left, and --elastic 2:2 needs 2')"

# A process still waits to join when the others end.
"$run" -t 60 -n 3 --elastic 2:3 "$rank" never wait.go > wait.out 2> wait.err &
job=$!
until_ranks 'the end of the others: all are there' wait.out 3
victim=$(pid_of wait.out 2)
kill -9 "$victim"
until_true another wait.out 2
begin=$(hundredths)
: > wait.go
wait $job
check 'the end of the others: exit status' 0 $?
check 'the end of the others: soon' yes "$(within 0 1000 $(($(hundredths) - begin)))"
check 'the end of the others: nothing is left' gone "$(gone_in_time $(pids_of wait.out))"

# ---- >>no orphans ----

"$run" -t 60 -n 3 --elastic 1:3 "$rank" until never.go > orphan.out 2> orphan.err &
job=$!
until_ranks 'orphans: all are there' orphan.out 3
restart orphan 1 3 orphan.out
keeper=$(parent_of "$(pid_of orphan.out 1)")
kill -9 $job
wait $job
check 'orphans: coll-run is killed, nothing is left' gone "$(gone_in_time $(pids_of orphan.out) "$keeper")"

"$run" -t 60 -n 2 --elastic 1:2 "$rank" until never.go > int.out 2> int.err &
job=$!
until_ranks 'SIGTERM to coll-run: all are there' int.out 2
kill $job
wait $job
check 'SIGTERM to coll-run: exit status' 143 $?
check 'SIGTERM to coll-run: nothing is started again' '0 gone' "$(said int.err again) $(gone_in_time $(pids_of int.out))"

# ---- >>hosts, by a script in the place of ssh ----

cat > rsh << 'END'
#!/bin/sh
cd "$(dirname "$0")" || exit 1
[ "$1" != late ] || [ -e late.up ] || exit 255
[ "$1" != dead ] || exit 255
echo "$$" > "rsh.pid.$1"
cd / || exit 1
exec env -i PATH="$PATH" HOME=/ sh -c "$2"
END
chmod +x rsh
hosts() { "$run" -t 60 --rsh "$dir/rsh" "$@"; }

hosts -H a:2,b:2,late:1 --elastic 2:5 --restart 9 "$rank" until host.go 5 > host.out 2> host.err &
job=$!
until_ranks 'hosts: those that answer begin' host.out 4
check 'hosts: one does not answer' 1 "$(said host.err '^coll-run: late: no launcher answers there: .*; it is tried again later$')"
restart host 2 4 host.out
kill -9 $(cat rsh.pid.b)
until_ranks 'hosts: one is lost' host.out 2
until_ranks 'hosts: it is called again' host.out 4
check 'hosts: these are restarts' 3 "$(said host.err 'is started again')"
: > late.up
: > host.go
wait $job
check 'hosts: exit status' 0 $?
check 'hosts: the one that is late has come' '5 1' "$(said host.out 'of 5 ends at') $(said host.out '^\[[0-9]+ late\] rank')"
check 'hosts: the one that was lost' 1 "$(said host.err '^coll-run: lost b \(ranks 2-3\): .*; the others go on$')"
check 'hosts: nothing is left' gone "$(gone_in_time $(pids_of host.out))"

hosts -H a:1,b:1,c:1 --elastic 1:2 --restart 1 "$rank" until spare.go 2 > spare.out 2> spare.err &
job=$!
until_ranks 'a spare slot: two begin' spare.out 2
before=$(said spare.out 'step [0-9]+: 2 ranks$')
kill -9 $(cat rsh.pid.b)
for time in 1 2 3 4 5; do until_true grown spare.out 2 && break; done
until_ranks 'a spare slot: it is filled' spare.out 2
check 'a spare slot: on the third host' 1 "$(said spare.out '^\[2 c\] pid')"
: > spare.go
wait $job
check 'a spare slot: exit status' 0 $?

hosts -H a:1,dead:1 --elastic 2:2 "$rank" until never.go > dead.out 2> dead.err
check 'too few hosts: exit status, a sentence' '1 1' \
    "$? $(said dead.err '^coll-run: the hosts that answer have . slots?, and --elastic 2:2 needs 2$')"

# ---- >>launchers that meet ----

port=$("$child" port)
export COLL_KEY=0123456789abcdef0123
meet() { "$run" -t 60 --join "127.0.0.1:$port" "$@"; }
meet -n 2 --elastic 2:4 "$rank" until meet.go 4 > first.out 2> first.err &
first=$!
until_ranks 'join: it begins with MIN' first.out 2
"$run" -t 60 --join "127.0.0.1:$port" -n 2 --elastic 2:4 "$rank" until meet.go 4 > second.out 2> second.err &
second=$!
until_ranks 'join: another launcher comes' first.out 4
meet -n 1 --elastic 2:4 "$rank" until meet.go 4 2> full.err
check 'join: there is no place' '1 1' "$? $(said full.err 'all 4 ranks are there already')"
meet -n 1 --elastic 1:4 "$rank" until meet.go 4 2> other.err
check 'join: another --elastic' '1 1' "$? $(said other.err 'its --elastic is another one than here')"
kill $second
wait $second
check 'join: a launcher that is to leave' 143 $?
until_ranks 'join: without it' first.out 2
check 'join: its processes have left' 2 "$(said first.err 'was killed by SIGTERM .*; it has left the job$')"
meet -n 1 --elastic 2:4 ./missing 2> missing.err
check 'join: one without the program' '127 1' "$? $(said missing.err "cannot execute './missing'")"
"$run" -t 60 --join "127.0.0.1:$port" -n 2 --elastic 2:4 "$rank" until meet.go 4 > third.out 2> third.err &
third=$!
until_ranks 'join: a third one' first.out 4
kill -9 $third
wait $third
until_ranks 'join: it is lost' first.out 2
check 'join: it is lost, a sentence' 1 "$(said first.err '^coll-run: lost .* \(ranks .*\): .*; the others go on$')"
meet -n 2 --elastic 2:4 "$rank" until meet.go 4 > fourth.out 2> fourth.err &
fourth=$!
until_ranks 'join: a fourth one' first.out 4
slot=$(sed -n 's/^\[ *\([0-9]*\)\].*pid .*/\1/p' fourth.out | tail -n 1)
restart first "$slot" 4 fourth.out
: > meet.go
wait $fourth
check 'join: exit status of the fourth' 0 $?
wait $first
check 'join: exit status of the first' 0 $?
cat first.out second.out third.out fourth.out > meet.out
check 'join: nothing is left' gone "$(gone_in_time $(pids_of meet.out))"

# A launcher that begins alone, as others may come from other hosts: no address is loopback.
if getent hosts "$(hostname)" > alone.hosts && ip route get 192.0.2.1 > alone.route 2>&1; then
    "$run" --join "$(hostname):$port" -n 2 --elastic 2:4 sh -c 'echo "$COLL_ADDR"' > alone.out
    check 'join: it begins alone' '0 2 0' "$? $(said alone.out ':') $(said alone.out '] 127[.]')"
else
    echo "join: it begins alone: skipped: no name or no address"
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
