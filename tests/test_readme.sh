#!/bin/sh
# test_readme.sh - what README.md and the manual in coll.h show is compiled and run as it stands there: the programs, the pieces,
# the commands of the simulator and of coll-run, and what a program says that cannot start.
#
# usage: [CC=cc] [CFLAGS=...] [COLL_LIBS="-pthread -luring"] sh tests/test_readme.sh COLL-RUN
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2086
top=$(cd "$(dirname "$0")/.." && pwd)
run=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
libs=${COLL_LIBS:--pthread -luring}
passed=0 failed=0
# no launcher of ours
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

check() { # name expected got
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); echo "ok - $1"
    else failed=$((failed + 1)); printf 'FAILED - %s: expected\n%s\ngot\n%s\n' "$1" "$2" "$3"; fi
}
block() { # the n-th piece of C of README.md
    awk -v n="$1" '/^```c/ { f = ++k == n; next } /^```/ { f = 0 } f' "$top/README.md"
}
compile() { # file: into a program of its name
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror ${CFLAGS:--O0 -DCOLL__ONE_TIER} -I"$top" "$1" -o "${1%.c}" $libs \
        > errors 2>&1 || { head -n 20 errors; return 1; }
}

# ---- programs ----

four='rank 0 of 4: 6 4
rank 1 of 4: 6 4
rank 2 of 4: 6 4
rank 3 of 4: 6 4'
block 1 > hello.c
{
    printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n'
    awk '/^ \*     static int worker/ { f = 1 } f { is_end = /^ \*     }$/; sub(/^ \* ?/, ""); sub(/four ranks, threads.*/, "")
        print; ends += is_end; if (ends == 2) exit }' "$top/coll.h" | sed 's/void \*arg)/void *arg __attribute__((unused)))/'
} > manual.c
for program in hello manual; do
    compile $program.c || { echo "0 passed, 1 failed"; exit 1; }
    check "$program: four threads" "$four" "$(./$program | sort)"
    check "$program: coll-run without --threads: how it ends" 1 "$("$run" -n 4 ./$program > out 2>&1; echo $?)"
    check "$program: coll-run without --threads: no rank has worked" 0 "$(grep -c 'rank . of' out)"
    for rank in 0 1 2 3; do
        check "$program: coll-run without --threads: process $rank says why, on the log and by itself" 2 \
            "$(grep -c "^\[$rank\] .*COLL_THREADS=1.*coll-run --threads 4" out)"
    done
    check "$program: coll-run with --threads" '0 8' "$("$run" -n 2 --threads 4 ./$program > out; echo $?) \
$(grep -c ' of 8: 28 8' out)"
    check "$program: COLL_RANK alone" '1 2' "$(COLL_RANK=1 ./$program 2> out > /dev/null; echo $?) \
$(grep -c 'COLL_RANK=1 is set but COLL_SIZE is not' out)"
    check "$program: not on the log" '1 1' "$(COLL_RANK=1 COLL_DEBUG=none ./$program 2> out > /dev/null; echo $?) \
$(grep -c . out)"
    check "$program: a pod that does not know how many there are" 1 "$(JOB_COMPLETION_INDEX=0 ./$program > out 2>&1; echo $?)"
    check "$program: alone" "$four" "$(JOB_COMPLETION_INDEX=0 COLL_SIZE=1 ./$program | sort)"
done

# A program that looks at nothing is not silent.
cat > mute.c << 'END'
#define COLL_IMPLEMENTATION
#include "coll.h"
static int worker(coll_comm *comm, void *arg) { (void)arg; return coll_barrier(comm); }
int main(int argc, char **argv)
{
    coll_comm *comm = NULL;
    (void)argv;
    if (argc > 1) (void)coll_spawn(2, worker, NULL);
    else (void)coll_init(&comm, NULL);
    coll_free(comm);
    return 0;
}
END
compile mute.c
for arguments in "" "spawn"; do
    check "a start that nobody looks at: one line${arguments:+, $arguments}" '1 1' \
        "$(COLL_RANK=1 ./mute $arguments 2> out; grep -c . out) $(grep -c '^coll: COLL_RANK=1 is set' out)"
done

# ---- commands ----

# Each command of the simulator, and under it what is shown of its output.
grep -n '^    COLL_TRANSPORT=sim' "$top/README.md" > simulated
check 'there are commands of the simulator' 2 "$(grep -c . simulated)"
while IFS= read -r line; do
    number=${line%%:*} command=${line#*:    }
    shown=$(awk -v from="$number" 'NR > from { if (!/^        /) exit; print substr($0, 9) }' "$top/README.md" | sort)
    check "$command" "${shown:-$four}" "$(sh -c "$command" 2>&1 | sort)"
done < simulated

sed -n '/^    COLL_RANK=[01] COLL_SIZE=2/s/10\.0\.0\.1:5000/file:meeting/p' "$top/README.md" | sed 's/   *[a-z].*//' > by_hand
cat > program.c << 'END'
#define COLL_IMPLEMENTATION
#include "coll.h"
int main(void)
{
    coll_comm *comm;
    int n = 1;
    if (coll_init(&comm, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    if (coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_SUM)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
    printf("rank %d of %d: %d\n", coll_rank(comm), coll_size(comm), n);
    coll_free(comm);
    return 0;
}
END
compile program.c
{ sed 's/$/ \&/' by_hand; echo wait; } > both.sh
check 'two by hand' 'rank 0 of 2: 2 rank 1 of 2: 2' "$(sh both.sh 2>&1 | sort | xargs)"
mkdir bin && ln -s "$run" bin/coll-run
command=$(sed -n '/^    coll-run -n 4/s/^ *\(.*arguments\).*/\1/p' "$top/README.md")
check "$command" '[0] rank 0 of 4: 4 [1] rank 1 of 4: 4 [2] rank 2 of 4: 4 [3] rank 3 of 4: 4' \
    "$(PATH="$dir/bin:$PATH" sh -c "$command" | sort | xargs)"

# ---- pieces: each inside a function that has what it speaks of ----

{
    echo '#define COLL_IMPLEMENTATION'
    echo '#include "coll.h"'
    echo 'static int halves(coll_comm *comm) { double sum = coll_rank(comm);'
    block 2
    echo '    return sum != (coll_rank(comm) % 2 ? 1 + 3 : 0 + 2); }'
    echo 'static int steps_of(coll_comm *comm) { float gradient[3] = { 1, 2, 3 }; const int steps = 3; const size_t n = 3;'
    block 3
    echo '    return gradient[2] != 3; }'
    block 4 | awk '/^const coll_call/ { exit } { print }'
    echo 'static int ranges(coll_comm *comm) { const range mine = { -coll_rank(comm), coll_rank(comm), 1 }; range all;'
    block 4 | awk '/^const coll_call/ { f = 1 } f'
    echo '    return all.low != -3 || all.high != 3 || all.rows != 4; }'
    echo 'static int blocks(coll_comm *comm) { const size_t out[4] = { 0, 1, 2, 3 }; size_t in[4];'
    echo '    const int me = coll_rank(comm);'
    echo '    const int send[6] = { me, me, me, me, me, me }; int recv[12] = { 0 };'
    block 5
    echo '    return in[3] != (size_t)me || (me && recv[4 * me - 1] != 3); }'
    echo 'static int step(void) { float gradient[4] = { 1, 2, 3, 4 }; const size_t n = 4;'
    block 7
    echo '    coll_free(comm); return gradient[3] != 4; }'
    echo 'static int worker(coll_comm *comm, void *arg) { (void)arg; return halves(comm) ? 2 : steps_of(comm) ? 3'
    echo '    : ranges(comm) ? 4 : blocks(comm) ? 5 : 0; }'
    echo 'int main(void) { const int wrong = coll_spawn(4, worker, NULL); return wrong ? wrong : step() ? 7 : 0; }'
} > pieces.c
compile pieces.c && check 'the pieces: the number of a wrong one' 0 "$(./pieces > out 2>&1; echo $?)"
block 6 | grep -c . > out
check 'the two lines of the implementation' "$(head -n 2 hello.c | sed 's/ *\/\*.*//')" "$(block 6)"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
