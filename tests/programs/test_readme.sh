#!/bin/sh
# test_readme.sh - what README.md, the pages of docs/ and the manual in coll.h show is compiled and run unchanged: the
# programs, the pieces, the commands of the simulator and of coll-run, and what a program says that cannot start.  The longer
# programs of docs/ are in test_pages.sh.
#
# usage: [CC=cc] [CFLAGS=...] sh tests/programs/test_readme.sh COLL-RUN
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
# shellcheck disable=SC2086
top=$(cd "$(dirname "$0")/../.." && pwd)
run=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
libs=-pthread
passed=0 failed=0
# no launcher of ours
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

check() { # name expected got
    if [ "$2" = "$3" ]; then passed=$((passed + 1)); echo "ok - $1"
    else failed=$((failed + 1)); printf 'FAILED - %s: expected\n%s\ngot\n%s\n' "$1" "$2" "$3"; fi
}
block() { # the piece of C that has this text, of README.md and the pages
    awk -v text="$1" '/^```c/ { inside = 1; piece = ""; next }
        /^```/ { if (inside && !done && index(piece, text)) { printf "%s", piece; done = 1 } inside = 0 }
        inside { piece = piece $0 "\n" }' "$top/README.md" "$top"/docs/*.md
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
# The first program, as a newcomer has it: an empty folder, the two files, and the commands of README.md as they stand there, but
# for what makes the library fast.
mkdir first && block 'int main(void)' > first/hello.c
commands() { # the first one
    sed -n "/^    $1/,/^\$/s/^    //p" "$top/README.md" \
        | sed "s|CHECKOUT|'$top'|g; s|^cc |${CC:-cc} |; s|-O2|-O0 -DCOLL__ONE_TIER|"
}
commands 'cp CHECKOUT' > first.sh
commands 'cc CHECKOUT' > processes.sh
check 'README.md: the first program: 15 lines' 15 "$(grep -c . first/hello.c)"
check 'README.md: the first program, from the single file: commands' '4 2' "$(grep -c . first.sh) $(grep -c . processes.sh)"
check 'README.md: the first program, from the single file' "$four" \
    "$(cd first && sh ../first.sh 2>&1 | sort)"
check 'README.md: no other files are taken' 'coll.c coll.h coll.o hello hello.c' "$(cd first && echo *)"
check 'README.md: the first program, as processes' "$(echo "$four" | sed 's/^rank \(.\)/[\1] &/')" \
    "$(cd first && sh ../processes.sh 2>&1 | sort)"
cp first/hello .
{
    printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n'
    awk '/^ \*     static int worker/ { f = 1 } f { is_end = /^ \*     }$/; sub(/^ \* ?/, ""); sub(/four ranks, threads.*/, "")
        print; ends += is_end; if (ends == 2) exit }' "$top/coll.h" | sed 's/void \*arg)/void *arg __attribute__((unused)))/'
} > manual.c
compile manual.c || { echo "0 passed, 1 failed"; exit 1; }
check "manual: coll-run without --threads: how it ends" 1 "$("$run" -n 4 ./manual > out 2>&1; echo $?)"
check "manual: coll-run without --threads: no rank has worked" 0 "$(grep -c 'rank . of' out)"
for rank in 0 1 2 3; do
    check "manual: coll-run without --threads: process $rank says why, once" 1 \
        "$(grep -c "^\[$rank\] .*COLL_THREADS=1.*coll-run --threads 4" out)"
done
for program in hello manual; do
    check "$program: four threads" "$four" "$(./$program | sort)"
    check "$program: coll-run with --threads" '0 8' "$("$run" -n 2 --threads 4 ./$program > out; echo $?) \
$(grep -c ' of 8: 28 8' out)"
    check "$program: COLL_RANK alone: one line" "1 1" "$(COLL_RANK=1 ./$program 2> out > /dev/null; echo $?) \
$(grep -c 'COLL_RANK=1 is set but COLL_SIZE is not' out)"
    check "$program: not on the log" "1 0" "$(COLL_RANK=1 COLL_DEBUG=none ./$program 2> out > /dev/null; echo $?) \
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
    if (argc > 1) (void)coll_spawn(2, worker, NULL, NULL);
    else (void)coll_init(&comm, NULL);
    coll_free(comm);
    return 0;
}
END
compile mute.c
for arguments in "" "spawn"; do
    check "a start without a terminal: one line${arguments:+, $arguments}" '1 1' \
        "$(COLL_RANK=1 ./mute $arguments 2> out; grep -c . out) $(grep -c '^coll: COLL_RANK=1 is set' out)"
done

# ---- commands ----

# Each command of the simulator, and under it what is shown of its output.
grep -n '^    \(COLL_DEBUG=error \)*COLL_TRANSPORT=sim' "$top/docs/simulation.md" > simulated
check 'there are commands of the simulator' 2 "$(grep -c . simulated)"
while IFS= read -r line; do
    number=${line%%:*} command=${line#*:    }
    shown=$(awk -v from="$number" 'NR > from { if (!/^        /) exit; print substr($0, 9) }' "$top/docs/simulation.md" \
        | sort)
    check "$command" "${shown:-$four}" "$(sh -c "$command" 2>&1 | sort)"
done < simulated

sed -n '/^    COLL_RANK=[01] COLL_SIZE=2/s/10\.0\.0\.1:5000/file:address/p' "$top/docs/starting.md" \
    | sed 's/   *[a-z].*//' > by_hand
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
command=$(sed -n '/^    coll-run -n 4/s/^ *\(.*arguments\).*/\1/p' "$top/docs/starting.md")
check "$command" '[0] rank 0 of 4: 4 [1] rank 1 of 4: 4 [2] rank 2 of 4: 4 [3] rank 3 of 4: 4' \
    "$(PATH="$dir/bin:$PATH" sh -c "$command" | sort | xargs)"

# ---- pieces: each inside a function that has what it speaks of ----

check 'every piece of README.md and docs/ is looked at, here or in test_pages.sh' '13 13' \
    "$(cd "$top" && cat README.md docs/install.md docs/starting.md docs/calls.md docs/failures.md | grep -c '^```c$') \
$(cd "$top" && cat docs/*.md | grep -c '^```c$' | awk '{ print $1 - 9 }')"
{
    echo '#define COLL_IMPLEMENTATION'
    echo '#include "coll.h"'
    echo 'static int threads(void) {'
    block 'coll_init_threads'
    echo '    for (int i = 0; i < 4; i++) if (coll_rank(comm[i]) != i || coll_free(comm[i])) return 1;'
    echo '    return 0; }'
    echo 'static int alone(void) { float gradient[4] = { 1, 2, 3, 4 }; const size_t n = 4;'
    block 'coll_init(&comm, NULL)'
    echo '    return gradient[3] != 4; }'
    echo 'static int mixed(coll_comm *comm) { float gradient[2] = { 1, 1.0078125f + 0x1p-20f }; const size_t n = 2;'
    block 'coll_allreduce_mixed'
    echo '    return gradient[0] != 1 || gradient[1] != 1.0078125f; }'
    echo 'static int steps_of(coll_comm *comm) { float gradient[3] = { 1, 2, 3 }; const int steps = 3; const size_t n = 3;'
    block 'coll_prepare'
    echo '    return gradient[2] != 3; }'
    echo 'static int halves(coll_comm *comm) { double sum = coll_rank(comm);'
    block 'coll_split'
    echo '    return sum != (coll_rank(comm) % 2 ? 1 + 3 : 0 + 2); }'
    echo 'static int blocks(coll_comm *comm) { const size_t out[4] = { 0, 1, 2, 3 }; size_t in[4];'
    echo '    const int me = coll_rank(comm);'
    echo '    const int send[6] = { me, me, me, me, me, me }; int recv[12] = { 0 };'
    block 'coll_alltoallv'
    echo '    return in[3] != (size_t)me || (me && recv[4 * me - 1] != 3); }'
    block 'static void join' | awk '/^const coll_call/ { exit } { print }'
    echo 'static int ranges(coll_comm *comm) { const range mine = { -coll_rank(comm), coll_rank(comm), 1 }; range all;'
    block 'static void join' | awk '/^const coll_call/ { f = 1 } f'
    echo '    return all.low != -3 || all.high != 3 || all.rows != 4; }'
    echo 'static int restored;'
    echo 'static void restore_last_complete_step(coll_comm *comm) { restored += coll_size(comm); }'
    echo 'static coll_status train(coll_comm *comm) { int n = 1; coll_status s = COLL_OK;'
    echo '    for (int i = 0; i < 9 && s == COLL_OK; i++) s = coll_allreduce(comm, &n, &n, 1, COLL_I32, COLL_MAX);'
    echo '    return s; }'
    echo 'static int survive(coll_comm *comm, void *arg) { coll_status status; (void)arg;'
    block 'restore_last_complete_step'
    echo '    const int size = coll_size(comm); coll_free(comm); return status || size != 3; }'
    echo 'static int saved;'
    echo 'static void save(int step) { saved += step; }'
    echo 'static coll_status train_step(coll_comm *comm, int step) {'
    echo '    return coll_allreduce(comm, &step, &step, 1, COLL_I32, COLL_MAX); }'
    echo 'static coll_comm *shrink_and_restore(coll_comm *comm) { coll_comm *left = NULL;'
    echo '    (void)coll_shrink(comm, &left); (void)coll_free(comm); return left; }'
    echo 'static int agree(coll_comm *comm, void *arg) { (void)arg; for (int step = 1; step < 9; step++) {'
    block 'coll_agree(comm, &is_done)'
    echo '    } const int size = coll_size(comm); coll_free(comm); return size != 3; }'
    echo 'static void listens(void *to, const char *address) { (void)to, (void)address; }'
    echo 'static int grow(void) { coll_config first = { .size = 1, .elastic = 1, .address = "127.0.0.1:0" };'
    echo '    first.tcp.listening = listens;'
    echo '    coll_comm *comm; if (coll_init(&comm, &first)) return 1;'
    block 'coll_grow(comm, &more)'
    echo '    coll_comm *whole; coll_status status; int tries = 2; coll_abort(comm, "a try"); (void)coll_barrier(comm);'
    block 'coll_replace(comm, &whole)'
    echo '    return status || coll_free(comm) || coll_size(whole) != 1 || coll_free(whole); }'
    echo 'static int leave(coll_comm *comm, void *arg) { (void)arg; return coll_barrier(comm) || coll_free(comm); }'
    echo 'static int worker(coll_comm *comm, void *arg) { (void)arg; return halves(comm) ? 2 : steps_of(comm) ? 3'
    echo '    : ranges(comm) ? 4 : blocks(comm) ? 5 : mixed(comm) ? 6 : 0; }'
    echo 'int main(int argc, char **argv) { (void)argv;'
    echo '    if (argc > 2) return coll_spawn(4, agree, NULL, NULL) || saved < 3 * 28 || saved % 3;'
    echo '    if (argc > 1) return coll_spawn(4, survive, NULL, NULL) || restored != 9;'
    echo '    const int wrong = coll_spawn(4, worker, NULL, NULL); return wrong ? wrong : threads() ? 7 : alone() ? 8'
    echo '        : coll_spawn(4, leave, NULL, NULL) ? 9 : grow() ? 10 : 0; }'
} > pieces.c
compile pieces.c && check 'the pieces: the number of a wrong one' 0 "$(./pieces > out 2>&1; echo $?)"
check 'the survivors go on' 0 "$(COLL_TRANSPORT=sim COLL_SIM="kill=2@3" ./pieces survive > out 2>&1; echo $?)"
check 'the survivors agree' 0 "$(COLL_TRANSPORT=sim COLL_SIM="kill=2@6" ./pieces survive agree > out 2>&1; echo $?)"
check 'the two lines of the implementation' "$(cat "$top/coll.c")" \
    "$(awk '/^```c/ { g = 1; next } g && /^```/ { exit } g' "$top/docs/install.md")"

# ---- the manual: the pieces at the heads of its sections make one program ----

piece() { # section: the lines under its head that are set in by nine
    awk -v head=" * $1" '$0 == head { f = 1; next } f && !/^ \*         / { exit } f { print substr($0, 12) }' "$top/coll.h"
}
check 'the manual: the two lines of the implementation' "$(cat "$top/coll.c")" "$(piece COMPILING)"
sections=$(sed -n '/^ \* COMPILING/,/^ \*\//s/^ \* \([A-Z][A-Z ]*\)$/\1/p' "$top/coll.h")
check 'the manual lists its sections' "$(echo "$sections" | sort | xargs)" "$({ echo GLOSSARY
    sed -n '/^ \* MANUAL/,/^ \* COMPILING/s/^ \*     [a-z ]*   *\([A-Z].*\)/\1/p' "$top/coll.h" | tr ',' '\n' \
        | sed 's/^ *//' | tr '[:lower:]' '[:upper:]'; } | sort | xargs)"
{
    piece COMPILING
    echo 'static int worker(coll_comm *comm, void *arg) { enum { n = 5 }; float x[n] = { 1, 2, 3, 4, 5 }, y[n]; (void)arg;'
    echo "$sections" | while IFS= read -r section; do
        case $section in COMPILING|SIMULATION|MPI|GPUS) ;; *) piece "$section" ;; esac
    done
    echo '    return y[0] != 4 || all[12] != 1; }'
    echo 'int main(void) { return coll_spawn(4, worker, NULL, NULL); }'
} | sed 's/a second thread may use .*//' > sections.c
for section in $(echo "$sections" | tr ' ' _); do
    name=$(echo "$section" | tr _ ' ')
    case $section in ENVIRONMENT|GLOSSARY) continue ;; esac
    check "the manual: $name begins with an example" 1 "$(piece "$name" | grep -c . | awk '{ print ($1 > 0 && $1 < 6) }')"
done
compile sections.c && check 'the manual: its pieces run' 0 "$(./sections > out 2>&1; echo $?)"
check 'the manual: what is not there says so' 4 "$(grep -c 'not available here; nothing was sent: .*band of f32' out)"
mv manual.c program.c && compile program.c
check 'the manual: the command of SIMULATION' "$four" "$(sh -c "$(piece SIMULATION | sed 's/ kill=3@120//')" 2>&1 | sort)"

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
