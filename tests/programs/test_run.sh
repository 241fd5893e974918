#!/bin/sh
# test_run.sh - what coll-run promises: the environment of the ranks, whole lines, the exit status
# and report of the first failure, and no process left behind however it ends; the same on several
# hosts, by a script in the place of ssh, and by launchers that meet at an address, in two network
# namespaces where there may be some.  test_ssh.sh has ssh itself.
#
# usage: [CC=cc] [CFLAGS=...] sh tests/programs/test_run.sh
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# Shell code in single quotes is for the ranks to expand.
# shellcheck disable=SC2016,SC2046,SC2086

. "$(dirname "$0")/run_jobs.sh"
cp coll-run other-run                           # as if it were that of another machine
. "$top/tests/support/folder.sh"
checker=$(folder release)/coll-check
env -u CFLAGS make -C "$top" --no-print-directory config=release "$checker" "$(folder release)/run_link" > check.log 2>&1 &
check_built=$!

# ---- >>started first, because they take seconds by design; their results are checked last ----

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
if [ $failed -gt 0 ]; then                  # some tests below would wait forever
    echo "$passed passed, $failed failed"
    exit 1
fi
for rank in 0 1 2; do
    got=$(grep -E '^COLL_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE)=' env.$rank | sort | tr '\n' ' ')
    check "environment: rank $rank" \
        "COLL_LOCAL_RANK=$rank COLL_LOCAL_SIZE=3 COLL_RANK=$rank COLL_SIZE=3 " "$got"
done
check 'environment: one address for all' 1 \
    "$(grep -h -E '^COLL_ADDR=127\.0\.0\.1:[0-9]+$' env.? | sort | uniq -c | grep -c ' 3 ')"
check 'environment: one job name for all' 1 \
    "$(grep -h -E '^COLL_WORLD=[0-9a-f]{16}$' env.? | sort | uniq -c | grep -c ' 3 ')"
others='RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|OMPI_|PMI_|SLURM_PROCID|SLURM_STEP|COLL_WORLD_SIZE'
check 'environment: other launchers removed' '' "$(grep -h -E "^($others)" env.?)"
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

# A terminal gets text, tabs and colors; after a carriage return the prefix is repeated; other bytes are escaped.
escapes='a\tb \303\274 \033[1;31mred\n10 %%\r20 %%\r\nBEL\a back\b \033]0;title\a \033[2J\033[5A \302\233 \233 \177 \303 end\n'
"$child" terminal "$run" -n 1 printf "$escapes" > terminal.out
printf '[0] a\tb \303\274 \033[1;31mred\033[m\n[0] 10 %%\r[0] 20 %%\r\n' > terminal.want
printf '[0] BEL^G back^H ^[]0;title^G ^[[2J^[[5A \\xc2\\x9b \\x9b ^? \\xc3 end\n' >> terminal.want
check 'a terminal: what passes, and what is shown' "$(od -c terminal.want)" "$(od -c terminal.out)"
check 'a terminal, --no-prefix: bytes as they are' "$(printf "$escapes" | od -c)" \
    "$("$child" terminal "$run" -n 1 --no-prefix printf "$escapes" | od -c)"
"$child" terminal "$run" -n 1 --log-dir escaped printf "$escapes" > /dev/null
check 'a terminal, --log-dir: bytes as they are' "$(printf "$escapes" | od -c)" "$(od -c escaped/rank-0.log)"
check 'no terminal: bytes as they are' "$(printf "$escapes" | sed 's/^/[0] /' | od -c)" \
    "$("$run" -n 1 printf "$escapes" | od -c)"
"$child" terminal "$run" -n 2 sh -c 'if [ $COLL_RANK = 0 ]; then
        printf "words\033[2J\n" >&2; : > said.0; until [ -e said.1 ]; do sleep 0.02; done; sleep 0.2; exit 3; fi
    until [ -e said.0 ]; do sleep 0.02; done; sleep 0.2
    for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; done; : > said.1' > terminal.out
check 'a terminal: last words are repeated, escapes shown' '3 0' "$? $(grep -c "$(printf '\033')" terminal.out)"
check 'a terminal: last words' 2 "$(grep -cF 'words^[[2J' terminal.out)"

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

# ---- >>survivors ----

"$run" --survive -n 3 sh -c '[ $COLL_RANK = 1 ] && kill -9 $$; until [ -e go ]; do sleep 0.02; done; echo on' \
    > lost.out 2> lost.err &
job=$!
until_true grep -qs 'the others go on' lost.err
: > go
wait $job
check '--survive: exit status' 0 $?
check '--survive: ranks that continue' '[0] on [2] on' "$(sort lost.out | tr '\n' ' ' | sed 's/ $//')"
check '--survive: report' 1 "$(grep -cE '^coll-run: rank 1 \(pid [0-9]+\) was killed by .* after .*; the others go on$' lost.err)"
"$run" -q --survive -n 2 sh -c 'exit 6'
check '--survive: no rank ends well' 6 $?

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

start_family() {
    "$child" evaluate "$run" -n 2 sh -c "$family" "$1" "$child" > "$1.evaluated" 2> /dev/null &
    evaluate=$!
    until_true all_family "$1"
    keeper=$(cat "$1.keeper.0")
    launcher=$(parent_of "$keeper")
    jobs_started="$jobs_started $launcher"
}
for signal in KILL:9 INT:2 TERM:15 HUP:1 QUIT:3; do
    number=${signal#*:} signal=${signal%:*}
    start_family "$signal"
    begin=$(hundredths)
    kill -$signal $launcher
    wait $evaluate
    check "SIG$signal: soon" yes "$(within 0 400 $(($(hundredths) - begin)))"
    check "SIG$signal: dies of it" "signal $number" "$(cat $signal.evaluated)"
    check "SIG$signal: ranks and their processes have ended" gone "$(gone_in_time $keeper $(family_of $signal))"
done

# The whole group of coll-run is killed, as by a shell that kills a job.
setsid "$run" -n 2 sh -c "$family" group "$child" > /dev/null 2>&1 &
until_true all_family group
launcher=$(parent_of "$(cat group.keeper.0)")
kill -9 "-$launcher"
check 'SIGKILL to the group of coll-run: all have ended' gone "$(gone_in_time $(family_of group) $(cat group.keeper.0))"

start_family guarded
kill -9 $keeper
wait $evaluate
check 'SIGKILL to the keeper: how it ends' 'status 137' "$(cat guarded.evaluated)"
check 'SIGKILL to the keeper: all have ended' gone "$(gone_in_time $(family_of guarded))"

start_family unguarded
kill -9 $keeper $launcher
wait $evaluate
check 'SIGKILL to coll-run and its keeper: ranks have ended' gone \
    "$(gone_in_time $(cat unguarded.rank.?))"
kill -9 $(cat unguarded.child.? unguarded.daemon.?)

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
"$run" -n 2 -t 2 sh -c 'echo $$ > late.$COLL_RANK; echo before; exec sleep 60' \
    > late.out 2> late.err
check 'timeout: exit status' 124 $?
check 'timeout: soon' yes "$(within 195 500 $(($(hundredths) - begin)))"
check 'timeout: names the ranks' 'coll-run: timeout: ranks 0-1 still ran after 2 s' "$(cat late.err)"
check 'timeout: output so far' 2 "$(grep -c before late.out)"
check 'timeout: gone' gone "$(gone_in_time $(cat late.?))"
"$run" -n 2 --timeout 30 true
check 'timeout: not reached' 0 $?
"$run" -n 1 -q -t 0.3 sh -c 'kill -STOP $$'
check 'timeout: a stopped rank ends' 124 $?

# ---- >>several hosts, by a script in the place of ssh ----

# What ssh does: a login shell in another directory, that greets, with its own environment.
cat > rsh << 'END'
#!/bin/sh
cd "$(dirname "$0")" || exit 1
echo "$$" > "rsh.pid.$1"
printf '%s\n' "$@" >> rsh.words
cd / || exit 1
case $1 in
dead) echo "no route to $1" >&2; exit 255 ;;
deaf) exec sleep 60 ;;
esac
echo 'Welcome to this host!'
exec env -i PATH="$PATH" HOME=/ OTHER=remote sh -c "$2"
END
chmod +x rsh
hosts() { "$run" --rsh "$dir/rsh" "$@"; }

{
    hosts -H g:2,h:2 sh -c '
    if [ $COLL_RANK = 3 ]; then
        until [ -s far.0 ] && [ -s far.1 ] && [ -s far.2 ]; do sleep 0.02; done
        kill -KILL $$
    fi
    echo $$ > far.$COLL_RANK
    exec sleep 60' 2> far.err
    echo $? > far.code
} &
far=$!

OTHER=ours COLL_DEBUG=warn GIVEN='from here' \
    hosts -H a:2,me@b --env GIVEN --env 'MORE=a  "b' sh -c 'pwd > hosts.pwd.$COLL_RANK; env > hosts.env.$COLL_RANK'
check 'hosts: exit status' 0 $?
for rank in 0 1 2; do
    got=$(grep -E '^COLL_(RANK|SIZE|LOCAL_RANK|LOCAL_SIZE)=' hosts.env.$rank | sort | tr '\n' ' ')
    check "hosts: rank $rank" \
        "COLL_LOCAL_RANK=$((rank % 2)) COLL_LOCAL_SIZE=$((2 - rank / 2)) COLL_RANK=$rank COLL_SIZE=3 " "$got"
done
for name in COLL_ADDR COLL_WORLD COLL_KEY; do
    check "hosts: one $name for all" 1 "$(grep -h "^$name=" hosts.env.? | sort | uniq -c | grep -c ' 3 ')"
done
check 'hosts: all are on one machine, so is the address' 3 "$(cat hosts.env.? | grep -cE '^COLL_ADDR=127\.0\.0\.1:[0-9]+$')"
check 'hosts: a key of 32 random bytes' 1 "$(grep -cE '^COLL_KEY=[0-9a-f]{64}$' hosts.env.2)"
check 'hosts: no argument shows the key' 0 "$(grep -c "$(sed -n 's/^COLL_KEY=//p' hosts.env.0)" rsh.words)"
check 'hosts: COLL_ variables and --env go along, others do not' \
    'COLL_DEBUG=warn GIVEN=from here MORE=a  "b OTHER=remote ' \
    "$(grep -E '^(COLL_DEBUG|GIVEN|MORE|OTHER)=' hosts.env.2 | sort | tr '\n' ' ')"
check 'hosts: our directory' "$dir $dir $dir " "$(cat hosts.pwd.? | tr '\n' ' ')"
check 'hosts: our own key counts' 0123456789abcdef \
    "$(COLL_KEY=0123456789abcdef hosts -H a:2,b --no-prefix sh -c 'echo $COLL_KEY' | sort -u)"
set -- 'two words' "it's" '"double"' 'a
newline' '' '$HOME `id` \back' '*' ';&|<>()' '-n' 'ü'
printf '%s\n' "$@" > words.want
check 'hosts: every argument as it is' "$(cat words.want)" "$(hosts -H a --no-prefix "$child" words "$@")"
check 'hosts: prefix' '[0 a] x|[1 a] x|[2 b] x|' "$(hosts -H a:2,b echo x | sort | tr '\n' '|')"
check 'hosts: one host needs no name' '[0] x|[1] x|' "$(hosts -H a:2 echo x | sort | tr '\n' '|')"
hosts -H a:2,b:2 "$child" lines 3000 > lines.out
check 'hosts: lines, all there, none torn' '12000 0' "$(($(wc -l < lines.out))) $(
    grep -cvE '^\[([0-3]) [ab]\] line [0-9]+ of \1 end$' lines.out)"
hosts -H a,b sh -c 'echo to out; echo to err >&2' > split.out 2> split.err
check 'hosts: stdout and stderr stay apart' '2 2' "$(grep -c 'to out' split.out) $(grep -c 'to err' split.err)"
check 'hosts: input goes to rank 0 only, all of it' '[0 a] 1000000|[1 a] 0|[2 b] 0|' \
    "$(hosts -H a:2,b sh -c 'echo $(wc -c)' < random | sort | tr '\n' '|')"
check 'hosts: input that no rank reads' 0 "$(hosts -H a,b true < random; echo $?)"
hosts -H a,b sh -c '
    if [ $COLL_RANK = 0 ]; then
        echo first words
        : > said
        until [ -e talked ]; do sleep 0.02; done
        sleep 0.2
        exit 5
    fi
    until [ -e said ]; do sleep 0.02; done
    sleep 0.2
    for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; done
    : > talked' > tail.out 2>&1
check 'hosts: last words are repeated' '5 1' \
    "$? $(grep -A 1 'the last that rank 0 wrote:' tail.out | grep -c '^    first words$')"
hosts -H a,b ./missing 2> missing.err
check 'hosts: missing program' '127 1' \
    "$? $(grep -cE "^coll-run: [ab]: cannot execute './missing': No such file or directory$" missing.err)"
begin=$(hundredths)
hosts -H a,dead sh -c ': > started' 2> dead.err
check 'hosts: one cannot be reached, exit status' '1 none' "$? $([ -e started ] && echo started || echo none)"
check 'hosts: one cannot be reached, says why' '1 1' \
    "$(grep -c '^\[dead\] no route to dead$' dead.err) $(grep -c 'exited with status 255' dead.err)"
check 'hosts: one cannot be reached, soon' yes "$(within 0 1000 $(($(hundredths) - begin)))"
hosts --wait 3 -H a,deaf true 2> deaf.err
check 'hosts: one is silent' '1 coll-run: no launcher answered on deaf in 3 s' "$? $(cat deaf.err)"
PATH=/usr/bin:/bin hosts --launcher /nowhere/coll-run -H a true 2> nowhere.err
check 'hosts: no coll-run there' '1 1' "$? $(grep -c 'is coll-run there, at the same path or in PATH?' nowhere.err)"
check 'hosts: --launcher' '[0] x' "$(hosts --launcher "$dir/other-run" -H a echo x)"
hosts -t 3 -H a,b sh -c 'echo $$ > late.$COLL_RANK; exec sleep 60' 2> late.err
check 'hosts: timeout' '124 coll-run: timeout: ranks 0-1 still ran after 3 s' "$? $(cat late.err)"
check 'hosts: timeout, gone' gone "$(gone_in_time $(cat late.?))"

for signal in KILL:9 INT:2 TERM:15; do
    number=${signal#*:} signal=${signal%:*} name=far_${signal%:*}
    "$child" evaluate "$run" --rsh "$dir/rsh" -H a,b sh -c "$family" "$name" "$child" > "$name.evaluated" 2> /dev/null &
    evaluate=$!
    until_true all_family "$name"
    keepers=$(cat "$name".keeper.?)
    agents="$(parent_of ${keepers%%[!0-9]*}) $(parent_of ${keepers##*[!0-9]})"
    head=$(ps -o pid= --ppid $evaluate)
    jobs_started="$jobs_started $head $agents"
    kill -$signal $head
    wait $evaluate
    check "hosts: SIG$signal: dies of it" "signal $number" "$(cat "$name.evaluated")"
    check "hosts: SIG$signal: nothing is left" gone \
        "$(gone_in_time $(family_of "$name") $(cat rsh.pid.a rsh.pid.b) $keepers $agents)"
done
# Both take 3 s by design, so they run at the same time.
hosts -H c,d sh -c "$family" lost_ssh "$child" > /dev/null 2> lost_ssh.err &
job_ssh=$!
hosts -H e,f sh -c "$family" lost_launcher "$child" > /dev/null 2> lost_launcher.err &
job_launcher=$!
until_true all_family lost_ssh
until_true all_family lost_launcher
kill -9 "$(cat rsh.pid.d)" "$(parent_of "$(cat lost_launcher.keeper.1)")"
wait $job_ssh
check 'hosts: ssh is killed' '1 1' "$? $(grep -c '^coll-run: lost d (rank 1): .* was killed by SIGKILL' lost_ssh.err)"
wait $job_launcher
check 'hosts: a launcher is killed' '1 1' "$? $(grep -c '^coll-run: lost f (rank 1): ' lost_launcher.err)"
check 'hosts: nothing is left of either' gone "$(gone_in_time $(cat lost_ssh.*.? lost_launcher.*.?))"

# ---- >>lists of hosts, and the environment of ranks ----

cat > hostfile << 'END'
# two machines
a slots=2 max_slots=4   # the first
  me@b:1

[fe80::1]:1
a
END
plan() {
    "$run" --rsh ./rsh --dry-run "$@" p 2>&1 | sed -n 's/^rank \([0-9]* on .*\): COLL_RANK.*/\1/p' | tr '\n' ','
}
check 'hostfile: slots, comments, users, a host twice' \
    '0 on a,1 on a,2 on a,3 on me@b,4 on fe80::1,' "$(plan --hostfile hostfile)"
check 'hostfile: -n takes the first slots' '0 on a,1 on a,' "$(plan -n 2 --hostfile hostfile)"
check '-H: a host twice' '0 on a,1 on a,2 on b,' "$(plan -H a,b,a)"
echo '# no host' > empty
for bad in '--hostfile empty true' '--hostfile missing true' '-H a:0 true' '-H a:x true' '-H , true' '-H -oProxyCommand=x true' \
    '-n 3 -H a,b true' '--join a:1 -n 1 true' '--join a -n 1 --size 2 true' '--join a:1 --size 2 true' \
    '--join a:1 -n 3 --size 2 true' \
    '--join a:1 -n 1 --size 2 -H a true' '--size 2 -n 2 true' '--threads 0 -n 1 true' \
    '--join a:1 -n 1 --size 3 --threads 2 true' \
    '--key-file missing -n 1 true' '--key-file hostfile -n 1 true' '--check -n 1 true' '--wait x -n 1 true'; do
    "$run" $bad > bad.out 2> bad.err
    check "bad usage: '$bad'" '2 0 1' "$? $(($(wc -c < bad.out))) $(grep -c '^coll-run: ' bad.err)"
done
check 'a short key' '2 1' "$(COLL_KEY=short "$run" -n 1 true 2> bad.err; echo $?) $(grep -c '16 bytes or more' bad.err)"
printf 'a key of the file\nand no more\n' > key
chmod 600 key
check '--key-file: its first line' 'a key of the file' "$("$run" --key-file key -n 1 --no-prefix sh -c 'echo "$COLL_KEY"')"
check '--threads: numbers' '[0] 0/6 0/6 T3|[3] 3/6 3/6 T3|' "$("$run" -n 2 --threads 3 sh -c \
    'echo $COLL_RANK/$COLL_SIZE $COLL_LOCAL_RANK/$COLL_LOCAL_SIZE T$COLL_THREADS' | sort | tr '\n' '|')"
check '--threads: the report' 'coll-run: ranks 3-5 (pid N) exited with status 4 after N s' "$("$run" -n 2 --threads 3 sh -c \
    '[ $COLL_RANK = 3 ] && exit 4; :' 2>&1 | sed 's/pid [0-9]*/pid N/;s/[0-9.]* s$/N s/')"
check 'COLL_THREADS is ours' 1 "$(COLL_THREADS=9 "$run" -n 1 --no-prefix sh -c 'echo $COLL_THREADS')"
check 'COLL_PORTS: the port is one of them' 1 \
    "$(COLL_PORTS=21000-21999 "$run" -n 1 sh -c 'echo $COLL_ADDR' | grep -cE ':21[0-9]{3}$')"
cores_of='sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status'
check '--bind: every rank has its share' "$([ "$cores" -ge 2 ] && echo 2 || echo 1)" \
    "$("$run" -n 2 --bind --no-prefix sh -c "$cores_of" | sort -u | grep -c .)"
check '--bind: all cores to one rank' "$(sh -c "$cores_of")" "$("$run" -n 1 --bind --no-prefix sh -c "$cores_of")"
"$run" -n 2 --log-dir logs sh -c 'echo out $COLL_RANK; echo err $COLL_RANK >&2' > logs.out 2>&1
check '--log-dir: here and there' '4 err 1 out 1 ' "$(($(wc -l < logs.out))) $(sort logs/rank-1.log | tr '\n' ' ')"
COLL_KEY=0123456789abcdefXYZ "$run" -n 2 --dry-run --env 'A=b c' touch "never '1'" > dry.out
check '--dry-run: exit status, a line for each rank' '0 2' \
    "$? $(grep -cE "^rank [01]: COLL_RANK=[01] .* A='b c' 'touch' 'never '.''1'.'''$" dry.out)"
check '--dry-run: starts nothing, and shows no key' '0 no' "$(grep -c XYZ dry.out) $([ -e "never '1'" ] && echo yes || echo no)"

# ---- >>launchers that meet ----

port=$("$child" port)
where=127.0.0.1:$port
join() { "$run" --join "$where" "$@"; }
listening() { "$child" dial "$port" 2> /dev/null; }
say_who='echo $COLL_RANK/$COLL_SIZE $COLL_LOCAL_RANK/$COLL_LOCAL_SIZE $COLL_ADDR'
say_file=$say_who' > join.$COLL_RANK; [ $COLL_RANK != 0 ] || cat > join.in'

export COLL_KEY=0123456789abcdef0123
join -n 2 --size 6 --threads 2 sh -c "$say_file" < random 2> join.err &
first=$!
until_true listening
# Foreign connections: one that sends nothing, a browser, noise, and launchers of other jobs.
"$child" silent "$port" &
silent=$!
jobs_started="$jobs_started $silent"
printf 'GET / HTTP/1.0\r\n\r\n' | "$child" talk "$port" > http.out
"$child" talk "$port" < random > noise.out 2> /dev/null
COLL_KEY=0123456789abcdef0124 join -n 1 --size 6 --threads 2 true 2> other_key.err
check 'join: another key' '1 1' "$? $(grep -c 'the launcher there has another key' other_key.err)"
COLL_KEY='' join -n 1 --size 6 --threads 2 true 2> no_key.err
check 'join: no key' '1 1' "$? $(grep -c 'a key is needed here' no_key.err)"
join -n 1 --size 8 --threads 2 true 2> other_size.err
check 'join: another size' '1 1' \
    "$? $(grep -c 'its --size or --threads is another one than here: 6 ranks, 2 threads' other_size.err)"
join -n 2 --size 6 --threads 2 true 2> many.err
check 'join: too many' '1 1' "$? $(grep -c 'it brings 4 ranks, and only 2 are missing' many.err)"
join -n 1 --size 6 --threads 2 sh -c "$say_file" 2> join_other.err
check 'join: exit status of the second' 0 $?
wait $first
check 'join: exit status of the first' 0 $?
check 'join: ranks, in the order in which they came' '0/6 0/4|2/6 2/4|4/6 0/2|' \
    "$(cat join.0 join.2 join.4 | cut -d' ' -f1-2 | tr '\n' '|')"
check 'join: one address' 1 "$(cat join.[024] | cut -d' ' -f3 | sort -u | grep -c '^127\.0\.0\.1:')"
check 'join: input goes to rank 0' 0 "$(cmp random join.in > /dev/null; echo $?)"
for why in 'a key is needed' 'without a proof' 'another one than here' 'only 2 are missing'; do
    check "join: names the refused launcher: $why" 1 "$(grep -c "refused the launcher of 127.0.0.1: .*$why" join.err)"
done
check 'join: a browser and noise get nothing' '0 0' "$(($(wc -c < http.out))) $(($(wc -c < noise.out)))"
kill $silent

join --wait 0.5 -n 1 --size 3 true 2> alone.err
check 'join: the others do not come' '1 1' "$? $(grep -c "waited 0.5 s at $where: 1 of 3 ranks have come" alone.err)"
begin=$(hundredths)
"$run" --join 192.0.2.1:9 --wait 0.5 -n 1 --size 2 true 2> none.err
check 'join: no launcher' '1 1' "$? $(grep -c 'no launcher answers at 192.0.2.1:9 after 0.5 s: 192.0.2.1: ' none.err)"
check 'join: no launcher, in time' yes "$(within 40 450 $(($(hundredths) - begin)))"

join -n 1 --size 2 sh -c 'echo $$ > both.0; exec sleep 60' 2> both.err &
first=$!
until_true listening
join -n 1 --size 2 sh -c 'until [ -s both.0 ]; do sleep 0.02; done; exit 6' 2> both_other.err
check 'join: a failure, at its launcher' 6 $?
wait $first
check 'join: a failure, at the other one' 6 $?
said='rank 1 \(.*, pid [0-9]+\) exited with status 6 after [0-9.]+ s$'
check 'join: both say the same' "$(grep -E "$said" both.err)" "$(grep -E "$said" both_other.err || echo nothing)"
check 'join: the other rank has ended' gone "$(gone_in_time "$(cat both.0)")"

join -n 1 --size 2 sh -c 'echo $PPID > cut.keeper; echo $$ > cut.0; exec sleep 60' 2> /dev/null &
first=$!
until_true listening
join -n 1 --size 2 sh -c 'echo $$ > cut.1; exec sleep 60' 2> cut.err &
second=$!
until_true all_written cut.0 cut.1
kill -9 "$(parent_of "$(cat cut.keeper)")"
wait $first
wait $second
check 'join: the first launcher is killed' '1 1' "$? $(grep -c "the launcher at $where has ended" cut.err)"
check 'join: the first launcher is killed, nothing is left' gone "$(gone_in_time $(cat cut.0 cut.1))"
unset COLL_KEY

# Two machines, as far as the network goes.
wait $check_built
cp "$top/$checker" "$top/$(folder release)/run_link" "$dir/"         # where coll-run looks for coll-check
a=collrun$$a b=collrun$$b
if ip netns add $a 2> /dev/null && spaces=$a && ip netns add $b && spaces="$a $b" &&
    ip link add veth0 netns $a type veth peer name veth0 netns $b; then
    for space in "$a 10.77.0.1" "$b 10.77.0.2"; do
        ip netns exec ${space% *} sh -c "ip link set lo up; ip link set veth0 up; ip addr add ${space#* }/24 dev veth0"
    done
    ip netns exec $a "$run" --join 10.77.0.1:29500 -n 1 --size 2 sh -c "$say_who" > space.a &
    first=$!
    ip netns exec $b "$run" --join 10.77.0.1:29500 -n 1 --size 2 sh -c "$say_who" > space.b
    check 'two networks: exit status' 0 $?
    wait $first
    check 'two networks: one address, of the first' '[0] 0/2 0/1 10.77.0.1|[1] 1/2 0/1 10.77.0.1|' \
        "$(cat space.a space.b | sed 's/:[0-9]*$//' | tr '\n' '|')"
    printf '#!/bin/sh\nexec ip netns exec $1 sh -c "$2"\n' > rsh_spaces
    chmod +x rsh_spaces
    check 'two networks: rank 0 is reached by its address' '10.77.0.1 10.77.0.1 ' \
        "$("$run" --rsh "$dir/rsh_spaces" -H $a,$b --no-prefix sh -c 'echo ${COLL_ADDR%:*}' | tr '\n' ' ')"
    "$run" -t 50 --rsh "$dir/rsh_spaces" -H $a,$b --check > check.out 2> check.err
    check 'two networks: --check' '0 1' \
        "$? $(grep -cE "tcp 10\.77\.0\.1 - 10\.77\.0\.2 +[0-9.]+ +[0-9.]+ +[0-9.]+$" check.out)"
    "$run" -t 50 --rsh "$dir/rsh_spaces" -H $a:2,$b "$dir/coll-check" --tuning two.tuning > check.out 2> check.err
    check 'two networks: --tuning' '0 1' "$? $(grep -cE '^latency=[0-9.]+us overhead=[0-9.]+us gbit=[0-9.]+ reduce=[0-9.]+GB/s$' \
        two.tuning)"
    check 'two networks: a job reads that' "$(grep -v '^#' two.tuning)" \
        "$(COLL_SECURITY=key COLL_TUNING=two.tuning "$run" -t 50 --no-prefix \
        --rsh "$dir/rsh_spaces" -H $a:2,$b "$dir/run_link" 2>&1)"
else
    echo 'skipped - two networks: there are no network namespaces here'
fi

# ---- >>--check ----

"$run" -t 50 -n 3 --check > check.out 2> check.err
check '--check: exit status' 0 $?
check '--check: three pairs' 3 \
    "$(grep -cE '^[01] - [12] .* (memory|tcp 127\.0\.0\.1 - 127\.0\.0\.1) +[0-9.]+ +[0-9.]+ +[0-9.]+$' check.out)"
check '--check: no zeros' 0 "$(grep -E '^[01] - [12]' check.out | grep -cE ' 0\.0( |$)')"
check '--check: the slowest, a summary' '2 1' \
    "$(grep -c '^slowest within a host by ' check.out) $(grep -cE '^summary: 3 ranks over .*\(.*\); ' check.out)"
"$run" -t 50 -n 13 --check > check.out
check '--check: many ranks, a line for each' '0 13' "$? $(grep -cE '^[0-9]+ .* to [0-9]+$' check.out)"
"$run" -n 1 --check > check.out
check '--check: one rank' '0 1' "$? $(grep -c 'is alone' check.out)"
"$run" -t 50 --rsh "$dir/rsh" -H a,b --check > check.out
check '--check: on hosts' '0 1' "$? $(grep -c '^0 - 1 ' check.out)"

# ---- >>--tuning ----

"$run" -t 50 -n 3 --no-prefix "$dir/coll-check" --tuning one.tuning > check.out 2> check.err
check '--tuning: exit status' 0 $?
check '--tuning: one host, one line' '1 0' "$(grep -cE '^latency=[0-9.]+us overhead=[0-9.]+us gbit=[0-9.]+ reduce=' one.tuning) $(
    grep -cE 'faster=|site=|far' one.tuning)"
check '--tuning: the file is shown' "$(grep -v '^#' one.tuning)" "$(sed '1,/^tuning file one.tuning:$/d' check.out)"
check '--tuning: a job reads it' "$(grep -v '^#' one.tuning)" \
    "$(COLL_TUNING=one.tuning "$run" -t 50 -n 3 --no-prefix "$dir/run_link" 2>&1)"
"$run" -t 50 -n 2 -q --no-prefix "$dir/coll-check" --tuning=none/tuning > check.out 2> check.err
check '--tuning: where nothing can be written' \
    '1 coll-check: cannot write the tuning file none/tuning: No such file or directory' "$? $(cat check.err)"
"$run" -n 1 -q --no-prefix "$dir/coll-check" --tuning alone.tuning > check.out 2> check.err
check '--tuning: one rank' '1 1 no' \
    "$? $(grep -c 'a job of 1 rank has no link' check.err) $([ -e alone.tuning ] && echo yes || echo no)"
for bad in --tuning --tuning= '--tuning x y' --what; do
    "$dir/coll-check" $bad > check.out 2> check.err
    check "coll-check: bad usage: '$bad'" '2 1' "$? $(grep -c '^coll-check: .*--help' check.err)"
done

# ---- >>the slow ones ----

wait $meek
check 'the others: exit status' 9 "$(cat meek.code)"
check 'the others: 3 s, then SIGTERM' yes "$(within 295 480 $(($(cat meek.end) - start_meek)))"
check 'the others: report' 'coll-run: ranks 1-2 went on and were killed by SIGTERM (Terminated)' \
    "$(tail -n 1 meek.err)"
check 'the others: gone' gone "$(gone_in_time $(cat meek.1 meek.2))"
wait $far
check 'hosts: the first failure, its exit status' 137 "$(cat far.code)"
check 'hosts: the first failure, its host' 1 "$(grep -cE far.err -e \
    '^coll-run: rank 3 \(h, pid [0-9]+\) was killed by SIGKILL \(Killed\) after [0-9.]+ s, perhaps for lack of memory$')"
check 'hosts: the others' 'coll-run: ranks 0-2 went on and were killed by SIGTERM (Terminated)' "$(tail -n 1 far.err)"
check 'hosts: the others have ended' gone "$(gone_in_time $(cat far.[012]))"
wait $stubborn
check 'stubborn: exit status' 3 "$(cat stubborn.code)"
check 'stubborn: 2 s more, then SIGKILL' yes \
    "$(within 495 750 $(($(cat stubborn.end) - start_stubborn)))"
check 'stubborn: report' 'coll-run: ranks 0,2 went on and were killed by SIGKILL (Killed)' \
    "$(tail -n 1 stubborn.err)"
check 'stubborn: gone' gone "$(gone_in_time $(cat stubborn.0 stubborn.2))"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
