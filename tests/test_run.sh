#!/bin/sh
# test_run.sh - what coll-run promises: the environment of the ranks, whole lines, the exit status
# and report of the first failure, and no process left behind however it ends.
#
# usage: [CC=cc] [CFLAGS=...] sh tests/test_run.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# Shell code in single quotes is for the ranks to expand.
# shellcheck disable=SC2016,SC2046,SC2086

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
dir=$(mktemp -d) || exit 1
passed=0
failed=0
jobs_started=

cleanup() {
    for pid in $jobs_started; do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM

for program in tools/coll-run tests/run_child; do
    ${CC:-cc} -std=c11 ${CFLAGS:--O2} "$top/$program.c" -o "$dir/${program##*/}" || exit 1
done
run=$dir/coll-run
child=$dir/run_child
cd "$dir" || exit 1

# ---- >>helpers ----

# check NAME EXPECTED ACTUAL
check() {
    if [ "$2" = "$3" ]; then
        passed=$((passed + 1))
        echo "ok - $1"
    else
        failed=$((failed + 1))
        echo "FAILED - $1: expected '$2', got '$3'" | tr '\n' '|'
        echo
    fi
}

# until_true COMMAND ...: try for about 6 s.
until_true() {
    tries=300
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.02
    done
}

# A process that is dead but not yet reaped by its parent no longer runs.
gone() {
    for pid in "$@"; do
        case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null) in
        '' | Z | X) ;;
        *) return 1 ;;
        esac
    done
}

# Ten looks in a row, for whoever writes to a pipe may sleep for a moment at any time.
all_wait() {
    for look in 0 1 2 3 4 5 6 7 8 9; do
        for pid in "$@"; do grep -qs '^State:[[:space:]]*S' "/proc/$pid/status" || return 1; done
        [ "$look" = 9 ] || sleep 0.02
    done
}

all_written() {
    for file in "$@"; do [ -s "$file" ] || return 1; done
}

gone_in_time() {
    if until_true gone "$@"; then
        echo gone
    else
        echo "still there: $*"
        kill -9 "$@" 2> /dev/null
    fi
}

hundredths() {                              # of a second, since some moment
    cut -d' ' -f1 /proc/uptime | tr -d .
}

within() {                                  # within LOW HIGH VALUE, all in 1/100 s
    if [ "$3" -ge "$1" ] && [ "$3" -le "$2" ]; then echo yes; else echo "$3 hundredths"; fi
}

# ---- >>started first, for they take seconds by design; their results are looked at last ----

start_stubborn=$(hundredths)
{
    "$run" -n 3 sh -c '
        if [ $COLL_RANK = 1 ]; then
            until [ -s stubborn.0 ] && [ -s stubborn.2 ]; do sleep 0.02; done
            exit 3
        fi
        trap "" TERM
        echo $$ > stubborn.$COLL_RANK
        while :; do sleep 0.1; done' 2> stubborn.err
    echo $? > stubborn.code
    hundredths > stubborn.end
} &
stubborn=$!

start_meek=$(hundredths)
{
    "$run" -n 3 sh -c '
        [ $COLL_RANK = 0 ] && exit 9
        echo $$ > meek.$COLL_RANK
        exec sleep 60' 2> meek.err
    echo $? > meek.code
    hundredths > meek.end
} &
meek=$!

# ---- >>environment ----

RANK=9 WORLD_SIZE=9 LOCAL_RANK=9 MASTER_ADDR=h MASTER_PORT=1 OMPI_COMM_WORLD_RANK=9 PMI_RANK=9 \
PMI_SIZE=9 SLURM_PROCID=9 SLURM_STEP_NUM_TASKS=9 COLL_WORLD_SIZE=9 COLL_RANK=9 COLL_DEBUG=kept \
MASTERS=kept SLURM_JOB_ID=kept OMP_NUM_THREADS=7 \
    "$run" -n 3 --env GIVEN=first --env GIVEN=a=b sh -c 'env > env.$COLL_RANK'
check 'environment: exit status' 0 $?
if [ $failed -gt 0 ]; then                  # some tests below would wait for ever
    echo "$passed passed, $failed failed"
    exit 1
fi
for rank in 0 1 2; do
    got=$(grep -E '^COLL_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE)=' env.$rank | sort | tr '\n' ' ')
    check "environment: rank $rank" \
        "COLL_LOCAL_RANK=$rank COLL_LOCAL_SIZE=3 COLL_RANK=$rank COLL_SIZE=3 " "$got"
done
check 'environment: one address for all' 1 \
    "$(grep -hE '^COLL_ADDR=127\.0\.0\.1:[0-9]+$' env.? | sort | uniq -c | grep -c ' 3 ')"
check 'environment: one job name for all' 1 \
    "$(grep -hE '^COLL_WORLD=[0-9a-f]{16}$' env.? | sort | uniq -c | grep -c ' 3 ')"
others='RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|OMPI_|PMI_|SLURM_PROCID|SLURM_STEP|COLL_WORLD_SIZE'
check 'environment: other launchers removed' '' "$(grep -hE "^($others)" env.?)"
check 'environment: the rest is kept' \
    'COLL_DEBUG=kept MASTERS=kept OMP_NUM_THREADS=7 SLURM_JOB_ID=kept ' \
    "$(grep -E '^(COLL_DEBUG|MASTERS|SLURM_JOB_ID|OMP_NUM_THREADS)=' env.1 | sort | tr '\n' ' ')"
check 'environment: --env, the last one counts' 'GIVEN=a=b' "$(grep '^GIVEN=' env.2)"

cores=$(nproc)
check 'OMP_NUM_THREADS: all cores to one rank' "$cores" "$(unset OMP_NUM_THREADS
    "$run" -n 1 --no-prefix sh -c 'echo $OMP_NUM_THREADS')"
check 'OMP_NUM_THREADS: never 0' 1 "$(unset OMP_NUM_THREADS
    "$run" -n $((cores + 1)) --no-prefix sh -c '[ $COLL_RANK = 0 ] && echo $OMP_NUM_THREADS; :')"
check 'OMP_NUM_THREADS: --env counts' 5 \
    "$("$run" -n 1 --no-prefix --env OMP_NUM_THREADS=5 sh -c 'echo $OMP_NUM_THREADS')"
check 'nested: the inner job has its own world' '[0] 0 2|[1] 1 2|' \
    "$("$run" -n 1 --no-prefix "$run" -n 2 sh -c 'echo $COLL_RANK $COLL_SIZE' | sort | tr '\n' '|')"
descriptors='cd /proc/$$/fd && echo *'
check 'ranks get no descriptors of ours' "$(sh -c "$descriptors" < /dev/null)" \
    "$("$run" -n 1 --no-prefix sh -c "$descriptors" < /dev/null)"
check 'input goes to rank 0 only' '[0] hello|[1] none|' "$(echo hello |
    "$run" -n 2 sh -c 'read line || line=none; echo $line' | sort | tr '\n' '|')"

# ---- >>output ----

check 'prefix: one digit' '[0] out|[1] out|' "$("$run" -n 2 echo out | sort | tr '\n' '|')"
check 'prefix: padded to the largest rank' '[ 3] x|[11] x|' \
    "$("$run" -n 12 echo x | sort | grep -E '3|11' | tr '\n' '|')"
"$run" -n 1 sh -c 'echo to out; echo to err >&2' > split.out 2> split.err
check 'stdout and stderr stay apart' '[0] to out/[0] to err' "$(cat split.out)/$(cat split.err)"
check 'a partial last line gets a newline' 2 "$("$run" -n 2 printf half | wc -l)"
check 'empty lines count' '[0] |[0] |' "$("$run" -n 1 printf '\n\n' | tr '\n' '|')"
check '--no-prefix adds nothing' 'a.' "$("$run" -n 1 --no-prefix printf a; echo .)"
mkfifo ask answer
"$run" -n 1 --no-prefix sh -c 'printf "name? "; read a; echo "hello $a"' < answer > ask &
exec 3> answer 4< ask
prompt=$(dd bs=1 count=6 <&4 2>/dev/null)
echo you >&3
exec 3>&-
check '--no-prefix: a prompt shows before its answer' 'name? hello you' "$prompt$(cat <&4)"
exec 4<&-
wait $!

"$run" -n 1 "$child" fill 200000 x > long.out
check 'long line: one prefix, one newline, every byte' '1 200005 200000' \
    "$(($(wc -l < long.out))) $(($(wc -c < long.out))) $(($(tr -dc x < long.out | wc -c)))"
"$run" -n 4 "$child" fill 150000 y > long.out
check 'long lines of several ranks: every byte' 600000 "$(($(tr -dc y < long.out | wc -c)))"
check 'long lines of several ranks: every piece has a prefix' 0 \
    "$(grep -cv '^\[[0-3]\] y*$' long.out)"

head -c 1000000 /dev/urandom > random
"$run" -n 1 --no-prefix cat random > random.out
check 'binary data: raw' 0 "$(cmp random random.out > /dev/null; echo $?)"
"$run" -n 1 printf 'a\000b\377\r\n\000' > binary.out
printf '[0] a\000b\377\r\n[0] \000\n' > binary.want
check 'binary data: with prefix' 0 "$(cmp binary.want binary.out > /dev/null; echo $?)"

"$run" -n 8 "$child" lines 3000 > lines.out
check 'lines of 8 ranks: all there' 24000 "$(($(wc -l < lines.out)))"
check 'lines of 8 ranks: none torn' 0 \
    "$(grep -cvE '^\[([0-7])\] line [0-9]+ of \1 end$' lines.out)"
"$run" -n 4 sh -c "'$child' lines 2000; '$child' lines 2000 >&2" > both.out 2>&1
check 'both outputs to one file: none torn' '16000 0' "$(($(wc -l < both.out))) $(
    grep -cvE '^\[([0-3])\] line [0-9]+ of \1 end$' both.out)"

# The first byte shows that the job runs; when all ranks sleep, they wait for the reader.
mkfifo slow
"$run" -n 4 sh -c 'echo $$ > slow.$COLL_RANK; exec "$0" lines 40000' "$child" > slow &
exec 4< slow
dd bs=1 count=1 <&4 > /dev/null 2>&1
until_true all_written slow.0 slow.1 slow.2 slow.3
check 'slow reader: the ranks wait' 0 "$(until_true all_wait $(cat slow.?); echo $?)"
lines=$(($(wc -l <&4)))
exec 4<&-
wait $!
check 'slow reader: the job ends well' 0 $?
check 'slow reader: nothing lost' 160000 $lines

"$run" -n 64 sh -c 'echo $COLL_RANK of $COLL_SIZE' > many.out 2> many.err
check '64 ranks: exit status' 0 $?
check '64 ranks: each once' 64 "$(sort -u many.out | grep -cE '^\[ ?([0-9]+)\] \1 of 64$')"
check 'success is silent' '' "$(cat many.err)"

{ "$run" -n 2 sh -c 'echo $$ > closed.$COLL_RANK; while :; do echo y; done' 2> closed.err
  echo $? > closed.code; } | head -n 1 > /dev/null
check 'closed output: exit status' 141 "$(cat closed.code)"
check 'closed output: says so' 1 \
    "$(grep -c '^coll-run: cannot write to standard output' closed.err)"
check 'closed output: the ranks end' gone "$(gone_in_time $(cat closed.?))"
if [ -e /dev/full ]; then
    "$run" -n 1 echo lost > /dev/full 2> full.err
    check 'full disk: exit status' 1 $?
    check 'full disk: says so' 1 "$(grep -c 'No space left' full.err)"
fi

# ---- >>failures ----

# The others end only when coll-run has seen rank 2 end, so rank 2 is certainly the first.
"$run" -n 4 sh -c '
    if [ $COLL_RANK = 2 ]; then echo $$ > first.new; mv first.new first; exit 5; fi
    until [ -s first ]; do sleep 0.02; done
    while [ -d /proc/$(cat first) ]; do sleep 0.02; done
    exit 1' 2> first.err
check 'first failure: exit status' 5 $?
check 'first failure: report' 1 "$(grep -cE \
    '^coll-run: rank 2 \(pid [0-9]+\) exited with status 5 after [0-9]+\.[0-9] s$' first.err)"
check 'first failure: the others in one line' 'coll-run: ranks 0-1,3 exited with status 1' \
    "$(tail -n +2 first.err)"
"$run" -n 4 sh -c '[ $COLL_RANK = 3 ] && kill -SEGV $$; :' 2> signal.err
check 'signal: exit status' 139 $?
check 'signal: report' 1 "$(grep -cE signal.err -e \
    '^coll-run: rank 3 \(pid [0-9]+\) was killed by SIGSEGV \(Segmentation fault.*\) after ')"
"$run" -n 2 sh -c 'echo last words >&2; exit 4' 2> words.err
check 'last words come before the report' '[N] last words' \
    "$(grep -B 1 -m 1 'with status 4' words.err | head -n 1 | sed 's/[01]/N/')"
"$run" -q -n 2 sh -c 'exit 6' 2> quiet.err
check '--quiet: exit status, no report' '6 0' "$? $(($(wc -c < quiet.err)))"

# ---- >>usage ----

for bad in '' '-n' '-n 0 true' '-n 4097 true' '-n 2x true' '-n -1 true' '-n 2' 'true' '-n 2 -z x' \
    '-n 2 --wrong true' '-n 2 -t 0 true' '-n 2 -t soon true' '-n 2 --timeout' '-n 2 --env X true' \
    '-n 2 --env =x true' '-n 2 --env COLL_RANK=1 true' '-n 2 --quiet=1 true'; do
    "$run" $bad > bad.out 2> bad.err
    check "bad usage: '$bad'" '2 0 1' "$? $(($(wc -c < bad.out))) $(grep -c '^coll-run: ' bad.err)"
done
check 'options end at the program' '[0] -n 3 --quiet' \
    "$("$run" -n 1 sh -c 'echo "$*"' sh -n 3 --quiet 2>&1)"
check '-- ends options too' '[0] x' "$("$run" -n 1 -- echo x 2>&1)"
check '--help' 1 "$("$run" --help | grep -c '^usage: coll-run')"
check '-h speaks of buffering' 1 "$("$run" -h | grep -c fflush)"
check '--version' 1 "$("$run" --version | grep -cE '^coll-run [0-9]+\.[0-9]+\.[0-9]+$')"
"$run" -n 3 ./missing 2> missing.err
check 'missing program: exit status' 127 $?
check 'missing program: one sentence' \
    "coll-run: cannot execute './missing': No such file or directory" "$(cat missing.err)"
echo 'echo' > not_executable
"$run" -n 3 ./not_executable 2> not.err
check 'not executable: exit status' 126 $?
check 'not executable: one sentence' \
    "coll-run: cannot execute './not_executable': Permission denied" "$(cat not.err)"
printf '#!/nowhere/sh\n' > no_interpreter
chmod +x no_interpreter
"$run" -n 2 ./no_interpreter 2> interpreter.err
check 'no interpreter: exit status, hint' '127 1' "$? $(grep -c 'interpreter' interpreter.err)"
"$run" -n 2 "$dir" 2> /dev/null
check 'a directory: exit status' 126 $?

# ---- >>the port ----

check 'port: rank 0 can bind, listen and accept' '[0] accepted' \
    "$("$run" -n 1 "$child" listen 2>&1)"
check 'port: again after connections were closed' '[0] accepted|[0] accepted|' \
    "$("$run" -n 1 sh -c "'$child' listen; '$child' listen" 2>&1 | tr '\n' '|')"
check 'port: no one else can bind it' '[0] reserved|[1] reserved|' \
    "$("$run" -n 2 "$child" reserved 2>&1 | sort | tr '\n' '|')"
for job in 1 2 3 4 5 6; do
    "$run" -n 1 sh -c "echo \$COLL_ADDR > port.$job; until [ -e ports.done ]; do sleep 0.02; done" &
done
until_true all_written port.1 port.2 port.3 port.4 port.5 port.6
check 'port: jobs at once have different ones' 6 "$(($(sort -u port.? | wc -l)))"
: > ports.done

# ---- >>no orphans ----

# Ranks with a child each: all pids are in files before anything happens to coll-run.
family='sleep 60 & echo $! > $0.child.$COLL_RANK; echo $$ > $0.rank.$COLL_RANK
    echo $PPID > $0.launcher.$COLL_RANK; wait'
start_family() {
    "$child" judge "$run" -n 2 sh -c "$family" "$1" > "$1.judged" 2> /dev/null &
    judge=$!
    until_true all_written "$1.child.0" "$1.child.1" "$1.rank.0" "$1.rank.1" \
        "$1.launcher.0" "$1.launcher.1"
    launcher=$(cat "$1.launcher.0")
    jobs_started="$jobs_started $launcher"
}
for signal in KILL:9 INT:2 TERM:15 HUP:1 QUIT:3; do
    number=${signal#*:} signal=${signal%:*}
    start_family "$signal"
    begin=$(hundredths)
    kill -$signal $launcher
    wait $judge
    check "SIG$signal: soon" yes "$(within 0 400 $(($(hundredths) - begin)))"
    check "SIG$signal: dies of it" "signal $number" "$(cat $signal.judged)"
    check "SIG$signal: ranks and their children are gone" gone \
        "$(gone_in_time $(cat $signal.child.? $signal.rank.?))"
done

# The leader of the ranks' group is the process that would kill them.
start_family unguarded
keeper=$(sed 's/.*) //' "/proc/$(cat unguarded.rank.0)/stat" | cut -d' ' -f3)
kill -9 "$keeper" $launcher
wait $judge
check 'SIGKILL to coll-run and its keeper: ranks are gone' gone \
    "$(gone_in_time $(cat unguarded.rank.?))"
kill -9 $(cat unguarded.child.?)

begin=$(hundredths)
"$run" -n 2 sh -c 'sleep 60 & echo $! > held.$COLL_RANK; echo done' > held.out
check 'children that hold the output: exit status' 0 $?
check 'children that hold the output: they do not hold us' yes \
    "$(within 0 400 $(($(hundredths) - begin)))"
check 'children that hold the output: gone' gone "$(gone_in_time $(cat held.?))"
check 'children that hold the output: nothing lost' 2 "$(grep -c 'done' held.out)"
"$run" -n 1 sh -c "'$child' daemon daemon.pid; until [ -s daemon.pid ]; do sleep 0.02; done"
check 'a daemon in its own session: gone' gone "$(gone_in_time "$(cat daemon.pid)")"

begin=$(hundredths)
"$run" -n 2 -t 0.3 sh -c 'echo $$ > late.$COLL_RANK; echo before; exec sleep 60' \
    > late.out 2> late.err
check 'timeout: exit status' 124 $?
check 'timeout: soon' yes "$(within 25 300 $(($(hundredths) - begin)))"
check 'timeout: says who' 'coll-run: timeout: ranks 0-1 still ran after 0.3 s' "$(cat late.err)"
check 'timeout: output so far' 2 "$(grep -c before late.out)"
check 'timeout: gone' gone "$(gone_in_time $(cat late.?))"
"$run" -n 2 --timeout 30 true
check 'timeout: not reached' 0 $?
"$run" -n 1 -q -t 0.3 sh -c 'kill -STOP $$'
check 'timeout: a stopped rank ends' 124 $?

# ---- >>the slow ones ----

wait $meek
check 'the others: exit status' 9 "$(cat meek.code)"
check 'the others: 3 s, then SIGTERM' yes "$(within 295 480 $(($(cat meek.end) - start_meek)))"
check 'the others: report' 'coll-run: ranks 1-2 went on and were killed by SIGTERM (Terminated)' \
    "$(tail -n 1 meek.err)"
check 'the others: gone' gone "$(gone_in_time $(cat meek.1 meek.2))"
wait $stubborn
check 'stubborn: exit status' 3 "$(cat stubborn.code)"
check 'stubborn: 2 s more, then SIGKILL' yes \
    "$(within 495 750 $(($(cat stubborn.end) - start_stubborn)))"
check 'stubborn: report' 'coll-run: ranks 0,2 went on and were killed by SIGKILL (Killed)' \
    "$(tail -n 1 stubborn.err)"
check 'stubborn: gone' gone "$(gone_in_time $(cat stubborn.0 stubborn.2))"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
