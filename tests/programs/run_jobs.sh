# run_jobs.sh - what test_run.sh and test_ssh.sh share, for `.`: coll-run and run_child, built in a folder of this run, which is
# the current one, checks, and a job whose ranks start processes.
# shellcheck shell=sh disable=SC2016,SC2034

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
dir=$(mktemp -d) || exit 1
passed=0
failed=0
jobs_started=
spaces=

cleanup() {
    for pid in $jobs_started; do kill -9 "$pid" 2>/dev/null; done
    for space in $spaces; do ip netns del "$space"; done
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM
unset OMP_NUM_THREADS

for program in tools/coll-run tests/programs/run_child; do
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

parent_of() { sed 's/.*) //' "/proc/$1/stat" | cut -d' ' -f2; }

# A process that is dead but not yet reaped by its parent no longer runs.
gone() {
    for pid in "$@"; do
        case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null) in
        '' | Z | X) ;;
        *) return 1 ;;
        esac
    done
}

# Ten checks in a row, because a process that writes to a pipe may sleep for a moment at any time.
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
    [ $# -gt 0 ] || { echo 'no process was there'; return; }
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

# Ranks with a child each, and one that has called setsid: all pids are in files before anything happens to coll-run.
# A rank's parent is the keeper.
family='sleep 60 & echo $! > $0.child.$COLL_RANK; "$1" daemon $0.daemon.$COLL_RANK; echo $PPID > $0.keeper.$COLL_RANK
    echo $$ > $0.rank.$COLL_RANK; wait'
all_family() {
    all_written "$1.child.0" "$1.child.1" "$1.daemon.0" "$1.daemon.1" "$1.rank.0" "$1.rank.1" "$1.keeper.0" "$1.keeper.1"
}
family_of() { cat "$1".child.? "$1".daemon.? "$1".rank.?; }
